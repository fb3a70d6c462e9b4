// Note [Packed products]: a product by OpenBLAS in blocks packs the operands of every block anew, and waits for memory while it does. Here the
// operand that is smaller across (the tokens of a small batch) is packed once for all threads. Then each thread takes panels of the
// other, packs one, and multiplies it with all of the first; meanwhile it asks for the memory of the panel after it. A tile of c is
// summed in registers. The pieces are small, so no thread waits long for another. An element of c is the same sum in the same
// order whatever the number of threads.
#include "backend/cpu/packed_product.h"

#include "backend/cpu/strips.h"
#include "backend/cpu/tile.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t L = lanes<float>;
// A tile's sums leave registers for a row of b and one number of a, spread over a vector.
constexpr int64_t max_rows = vector_bytes == 64 ? 14 : 6, max_cols = 2 * L;
constexpr int64_t tile_size = max_rows * max_cols;
constexpr int64_t max_cut = 512;   // of k: panels of both operands lie in the L2 cache
constexpr int64_t max_group = 64;  // panels whose sums a thread keeps from one cut of k to the next

// sum (R rows of max_cols numbers) = a·b, or += that, of a panel of rows and one of columns.
template <int R> [[gnu::noinline]] void multiply_tile(float* sum, const float* a, const float* b, int64_t k, bool add) {
  Vector<float> s[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) s[r][0] = s[r][1] = Vector<float>{};
  for (int64_t i = 0; i < k; ++i, a += L, b += max_cols) {
    Vector<float> x = load_vector(b), y = load_vector(b + L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) s[r][0] += a[r] * x, s[r][1] += a[r] * y;
  }
  if (add) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      s[r][0] += load_vector(sum + r * max_cols), s[r][1] += load_vector(sum + r * max_cols + L);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store_vector(sum + r * max_cols, s[r][0]), store_vector(sum + r * max_cols + L, s[r][1]);
}

using MultiplyTile = void (*)(float*, const float*, const float*, int64_t, bool);
template <int R = int(max_rows)> MultiplyTile tile_of(int64_t rows) {
  if constexpr (R > 1)
    if (rows < R) return tile_of<R - 1>(rows);
  return multiply_tile<R>;
}

// Where panels of an operand are packed from: element (i, j), i across the panel and j along k, lies at data[i · across + j · along].
struct Source {
  const float* data;
  int64_t across, along;
  SINTER_INLINE Source(const MatmulOperand& o, bool rows)
      : data(reinterpret_cast<const float*>(o.data)),
        across(rows != o.transposed ? o.ld : 1),
        along(rows != o.transposed ? 1 : o.ld) {}
  SINTER_INLINE const float* at(int64_t i, int64_t j) const { return data + i * across + j * along; }
};

// `width` rows or columns from `from` on, where there are `room`, as V vectors for each of k. What follows them in a panel is not read, or belongs
// to columns that are not stored.
template <int V>
void pack_panel(float* to, const Source& s, const float* from, int64_t width, int64_t room, int64_t k) {
  constexpr int64_t W = V * L;
  int64_t i = 0;
  if (s.across == 1 && room >= W) {
    for (; i < k; ++i)
      for (int v = 0; v < V; ++v) store_vector(to + i * W + v * L, load_vector(from + i * s.along + v * L));
  } else if (s.along == 1) {  // squares, transposed in registers
    for (; i + L <= k; i += L)
      for (int v = 0; v < V; ++v) {
        Vector<float> x[L];
        const float* p = from + v * L * s.across + i;
#pragma GCC unroll 16
        for (int64_t r = 0; r < L; ++r) {
          x[r] = Vector<float>{};
          if (v * L + r >= width) continue;
          x[r] = load_vector(p + r * s.across);
          __builtin_prefetch(p + r * s.across + 4 * L);  // these rows are too many for the hardware to follow
        }
        transpose_registers<1, float>(x);
#pragma GCC unroll 16
        for (int64_t r = 0; r < L; ++r) store_vector(to + (i + r) * W + v * L, x[r]);
      }
  }
  for (; i < k; ++i)
    for (int64_t j = 0; j < W; ++j) to[i * W + j] = j < width ? from[j * s.across + i * s.along] : 0;
}

// m or n, cut into panels: rows evenly, columns into whole tiles and a rest.
struct Panels {
  Source source;
  int64_t length, count;
  bool rows;

  SINTER_INLINE Panels(const MatmulOperand& o, int64_t n, bool of_rows)
      : source(o, of_rows), length(n), count((n + most(of_rows) - 1) / most(of_rows)), rows(of_rows) {}
  SINTER_INLINE static int64_t most(bool of_rows) { return of_rows ? max_rows : max_cols; }
  SINTER_INLINE int64_t begin(int64_t i) const { return rows ? length * i / count : min_of(length, i * max_cols); }
  SINTER_INLINE int64_t size(int64_t i) const { return begin(i + 1) - begin(i); }
  SINTER_INLINE int64_t packed() const { return rows ? L : max_cols; }  // numbers for each of k
  void pack(float* to, int64_t i, int64_t k0, int64_t k) const {
    if (rows) pack_panel<1>(to, source, source.at(begin(i), k0), size(i), length - begin(i), k);
    else pack_panel<2>(to, source, source.at(begin(i), k0), size(i), length - begin(i), k);
  }
};

// The memory that a panel will be packed from, asked for a few cache lines at a time.
struct Ahead {
  const float *row = nullptr, *at = nullptr;
  int64_t stride = 0, per_row = 0, lines = 0;

  SINTER_INLINE Ahead(const Panels& p, int64_t i, int64_t k0, int64_t k) {
    if (i == p.count) return;
    bool by_k = p.source.across == 1;
    row = at = p.source.at(p.begin(i), k0);
    stride = by_k ? p.source.along : p.source.across;
    per_row = ((by_k ? p.size(i) : k) + L - 1) / L * L;
    lines = per_row / L * (by_k ? k : p.size(i));
  }
  SINTER_INLINE void ask(int64_t n) {
    for (n = min_of(n, lines), lines -= n; n > 0; --n) {
      __builtin_prefetch(at, 0, 2);
      at += L;
      if (at - row >= per_row) at = row += stride;
    }
  }
};

void store_tile(float* c, int64_t ld, const float* sum, int64_t rows, int64_t cols, bool add) {
  for (int64_t i = 0; i < rows; ++i, c += ld, sum += max_cols) {
    if (cols == max_cols) {
      Vector<float> x = load_vector(sum), y = load_vector(sum + L);
      if (add) x += load_vector(c), y += load_vector(c + L);
      store_vector(c, x), store_vector(c + L, y);
    } else {
      for (int64_t j = 0; j < cols; ++j) c[j] = sum[j] + (add ? c[j] : 0);
    }
  }
}

}  // namespace

bool can_pack(const MatmulProblem& p) {
  return p.a.dtype == DType::f32 && p.outer * p.inner == 1 && !p.c.transposed && p.m > 0 && p.n > 0 && p.k > 0;
}

void packed_product(const MatmulProblem& p, bool accumulate, float* space) {
  Panels rows(p.a, p.m, true), cols(p.b, p.n, false);
  bool rows_shared = p.m <= p.n;
  const Panels &shared = rows_shared ? rows : cols, &other = rows_shared ? cols : rows;
  float* out = reinterpret_cast<float*>(p.c.data);
  // The shared panels in groups, so that there are several pieces of work for each thread: cores are not equally fast, and who is late with one
  // piece does fewer. But a panel of the other is packed for every group, which a few tiles must pay for.
  int64_t groups = (shared.count + max_group - 1) / max_group;
  while (other.count * groups < 6 * cpu::threads() && shared.count / (groups + 1) >= 4) ++groups;

  for (int64_t round = 0; round < p.k; round += packed_round) {
    int64_t depth = min_of(packed_round, p.k - round), cuts = (depth + max_cut - 1) / max_cut;
    auto cut = [&](int64_t c) SINTER_LAMBDA_INLINE { return round + depth * c / cuts; };
    // All panels of a cut, then those of the next.
    auto packed_at = [&](int64_t i, int64_t c) SINTER_LAMBDA_INLINE {
      return space + ((cut(c) - round) * shared.count + (cut(c + 1) - cut(c)) * i) * shared.packed();
    };
    parallel_for(shared.count * cuts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        int64_t i = t / cuts, c = t % cuts;
        shared.pack(packed_at(i, c), i, cut(c), cut(c + 1) - cut(c));
      }
    });
    parallel_for(other.count * groups, 1, [&](int64_t begin, int64_t end) {
      float *panel = buffer<float>(0, max_cut * max_cols), *sums = buffer<float>(1, max_group * tile_size);
      for (int64_t t = begin; t < end; ++t) {
        int64_t o = t / groups, group = t % groups;
        int64_t first = shared.count * group / groups, last = shared.count * (group + 1) / groups;
        for (int64_t c = 0; c < cuts; ++c) {
          int64_t k = cut(c + 1) - cut(c);
          bool finished = c + 1 == cuts;
          other.pack(panel, o, cut(c), k);
          Ahead ahead(other, finished ? o + 1 : o, finished ? round : cut(c + 1), k);
          int64_t share = ahead.lines / (last - first) + 1;
          for (int64_t s = first; s < last; ++s) {
            int64_t row = rows_shared ? s : o, col = rows_shared ? o : s;
            int64_t height = rows.size(row), width = cols.size(col);
            float* to = out + rows.begin(row) * p.c.ld + cols.begin(col);
            float* sum = sums + (cuts > 1 ? s - first : 0) * tile_size;
            const float *x = packed_at(s, c), *a = rows_shared ? x : panel, *b = rows_shared ? panel : x;
            ahead.ask(share);
            if (finished)
              for (int64_t i = 0; i < height; ++i)
                for (int64_t j = 0; j < width; j += L) __builtin_prefetch(to + i * p.c.ld + j, 1);
            tile_of(height)(sum, a, b, k, c > 0);
            if (finished) store_tile(to, p.c.ld, sum, height, width, accumulate || round > 0);
          }
        }
      }
    });
  }
}

}  // namespace sinter::SINTER_CPU_ISA
