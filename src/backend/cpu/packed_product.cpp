// Note [Packed products]: OpenBLAS, which other GEMMs go to block by block (Note [Who multiplies] in
// backend/matmul_problem.h), packs the operands of every block anew, and waits for memory while it does. Here there are
// two ways to share out the work.
//   - Where one side is long, the shorter one (the tokens of a small batch) is packed once for all threads. Then each
//     thread takes panels of the other, packs one, and multiplies it with all of the first.
//   - Where both are short, that would mean few pieces, each waiting for memory that another core has just written. So
//     c is cut into blocks, a few for each thread, and each thread packs for itself what a block needs of both: more
//     packing, but no waiting. So are batches.
// Either way a tile of c is summed in registers, and while it is, the thread asks for the memory that it will pack
// next. An element of c is one sum over k (over 2048 of it, then the next), in order, so it is the same in both ways
// and with any number of threads.
#include "backend/cpu/packed_product.h"

#include "backend/cpu/strips.h"
#include "backend/cpu/tile.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t L = lanes<float>;
// A tile's sums leave registers for a row of b and one number of a, spread over a vector.
constexpr int64_t max_rows = vector_bytes == 64 ? 14 : 6, max_cols = 2 * L;
constexpr int64_t tile_size = max_rows * max_cols;
constexpr int64_t line = 16;            // numbers in a cache line
constexpr int64_t panel_cut = 512;      // of k: a panel of both operands, and
constexpr int64_t block_cut = 256;      // the panels of a block lie in the L2 cache
constexpr int64_t max_tiles = 64;       // whose sums a thread keeps from one cut of k to the next
constexpr int64_t steps_per_line = 2;   // of k, between requests for memory: a core can only have some under way
constexpr int64_t worth_sharing = 1e5;  // terms, some microseconds: less is done sooner than it is handed over

// Lines of memory to ask for, one at a time: the first `width` numbers of each row; and what to ask for then.
struct Fetch {
  const float *row = nullptr, *at = nullptr, *end = nullptr;
  int64_t width = 0, stride = 0, rows = 0;
  Fetch* then = nullptr;

  SINTER_INLINE Fetch() = default;
  SINTER_INLINE Fetch(const float* first, int64_t width_, int64_t stride_, int64_t rows_)
      : row(first), at(first), end(first + width_), width(width_), stride(stride_), rows(rows_) {}
  SINTER_INLINE int64_t lines() const { return rows * ((width + line - 1) / line); }
  SINTER_INLINE Fetch* before(Fetch* other) { return rows > 0 ? (then = other, this) : other; }
  SINTER_INLINE Fetch* next() {
    __builtin_prefetch(at);
    if ((at += line) < end) return this;
    at = row += stride, end = row + width;
    return --rows > 0 ? this : then;
  }
};

// sum (R rows of max_cols numbers) = a·b, or sum + a·b, of a panel of rows and one of columns.
template <int R>
[[gnu::noinline]] void multiply_tile(float* sum, const float* a, const float* b, int64_t k, bool add, Fetch* fetch) {
  Vector<float> s[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) s[r][0] = s[r][1] = Vector<float>{};
  if (add) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      s[r][0] = load_vector(sum + r * max_cols), s[r][1] = load_vector(sum + r * max_cols + L);
  }
  int64_t i = 0;
  auto steps = [&](int64_t end) SINTER_LAMBDA_INLINE {
#pragma GCC unroll 1
    for (; i < end; ++i, a += L, b += max_cols) {
      Vector<float> x = load_vector(b), y = load_vector(b + L);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) s[r][0] += a[r] * x, s[r][1] += a[r] * y;
    }
  };
  for (; fetch && i + steps_per_line <= k; fetch = fetch->next()) steps(i + steps_per_line);
  steps(k);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store_vector(sum + r * max_cols, s[r][0]), store_vector(sum + r * max_cols + L, s[r][1]);
}

using MultiplyTile = void (*)(float*, const float*, const float*, int64_t, bool, Fetch*);
template <int R = int(max_rows)> MultiplyTile tile_of(int64_t rows) {
  if constexpr (R > 1)
    if (rows < R) return tile_of<R - 1>(rows);
  return multiply_tile<R>;
}

// Where panels of an operand are packed from: element (i, j), i across the panel and j along k, lies
// at data[i · across + j · along].
struct Source {
  const float* data;
  int64_t across, along;
  SINTER_INLINE Source(const MatmulOperand& o, bool rows)
      : data(reinterpret_cast<const float*>(o.data)),
        across(rows != o.transposed ? o.ld : 1),
        along(rows != o.transposed ? 1 : o.ld) {}
  SINTER_INLINE const float* at(int64_t i, int64_t j) const { return data + i * across + j * along; }
};

// `width` rows or columns from `from` on, where there are `room`, as V vectors for each of k. What follows them in a
// panel is not read, or belongs to columns that are not stored.
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
  // What packing panels [first, last) will read.
  SINTER_INLINE Fetch fetch(int64_t first, int64_t last, int64_t k0, int64_t k) const {
    bool by_k = source.across == 1;
    int64_t width = begin(last) - begin(first);
    const float* from = source.at(begin(first), k0);
    return by_k ? Fetch(from, width, source.along, k) : Fetch(from, k, source.across, k > 0 ? width : 0);
  }
};

void add_tile(float* sum, const float* c, int64_t ld, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, c += ld, sum += max_cols) {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) sum[j] += c[j];
  }
}
void store_tile(float* c, int64_t ld, const float* sum, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, c += ld, sum += max_cols) {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) c[j] = sum[j];
  }
}

void update_tile(const TileUpdate& to, int64_t offset, int64_t ld, const float* sum, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i, offset += ld, sum += max_cols)
    update_row(to.rule, to.master + offset, sum, to.m + offset, to.v + offset, cols);
}

// A round of k, cut.
struct Cuts {
  int64_t from, depth, count;

  SINTER_INLINE Cuts(int64_t from_, int64_t k, int64_t most)
      : from(from_), depth(min_of(packed_round, k - from_)), count((depth + most - 1) / most) {}
  SINTER_INLINE int64_t begin(int64_t c) const { return from + depth * c / count; }
  SINTER_INLINE int64_t size(int64_t c) const { return begin(c + 1) - begin(c); }
};

struct Product {
  Panels rows, cols;
  int64_t k;
  float* c;
  int64_t ld;
  bool accumulate;
  const TileUpdate* update;

  // One cut of one tile. `sum` is kept from cut to cut; the last one of a round brings it home.
  void tile(int64_t row, int64_t col, const float* a, const float* b, float* sum, const Cuts& cuts, int64_t cut,
            Fetch* ahead) const {
    int64_t height = rows.size(row), width = cols.size(col), offset = rows.begin(row) * ld + cols.begin(col);
    bool last = cut + 1 == cuts.count, add = accumulate || cuts.from > 0;
    const TileUpdate* to = cuts.from + cuts.depth == k ? update : nullptr;
    // Also the memory that the tile goes to.
    auto fetch = [&](bool wanted, const float* from) SINTER_LAMBDA_INLINE {
      return last && wanted ? Fetch(from + offset, width, ld, height) : Fetch();
    };
    Fetch of_c = fetch(add || !to, c), of_p = fetch(to, to ? to->master : nullptr),
          of_m = fetch(to, to ? to->m : nullptr), of_v = fetch(to, to ? to->v : nullptr);
    ahead = of_c.before(of_p.before(of_m.before(of_v.before(ahead))));
    tile_of(height)(sum, a, b, cuts.size(cut), cut > 0, ahead);
    if (!last) return;
    if (add) add_tile(sum, c + offset, ld, height, width);
    if (to) update_tile(*to, offset, ld, sum, height, width);
    else store_tile(c + offset, ld, sum, height, width);
  }
};

// What a thread does at once: a panel of the longer side, times panels [first, last) of the shorter one.
struct Piece {
  int64_t panel, first, last;
};

// All panels of the shorter side at once, or as many as a thread has room for the sums of. The last panels
// of the longer side, one for each thread, are cut up more finely, for those who are done before the
// others: cores are not equally fast.
struct Pieces {
  int64_t shared, other;
  int64_t groups = (shared + max_tiles - 1) / max_tiles;
  int64_t fine = min_of(4 * groups, shared);
  int64_t coarse = other - cpu::threads();  // a GEMM with fewer panels goes in blocks

  SINTER_INLINE int64_t count() const { return coarse * groups + (other - coarse) * fine; }
  SINTER_INLINE Piece operator()(int64_t t) const {
    bool whole = t < coarse * groups;
    int64_t u = whole ? t : t - coarse * groups, of = whole ? groups : fine, group = u % of;
    return {u / of + (whole ? 0 : coarse), shared * group / of, shared * (group + 1) / of};
  }
};

// The shorter side packed once, in `space`.
void multiply_panels(const Product& p, bool rows_shared, float* space) {
  const Panels &shared = rows_shared ? p.rows : p.cols, &other = rows_shared ? p.cols : p.rows;
  Pieces pieces{shared.count, other.count};
  for (int64_t round = 0; round < p.k; round += packed_round) {
    Cuts cuts(round, p.k, panel_cut);
    // All panels of a cut, then those of the next.
    auto packed_at = [&](int64_t i, int64_t c) SINTER_LAMBDA_INLINE {
      return space + ((cuts.begin(c) - round) * shared.count + cuts.size(c) * i) * shared.packed();
    };
    parallel_for(shared.count * cuts.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        int64_t i = t / cuts.count, c = t % cuts.count;
        shared.pack(packed_at(i, c), i, cuts.begin(c), cuts.size(c));
      }
    });
    parallel_pieces(pieces.count(), [&](int64_t t) {
      float *panel = buffer<float>(0, panel_cut * max_cols), *sums = buffer<float>(1, max_tiles * tile_size);
      auto [o, first, last] = pieces(t);
      int64_t later = t + cpu::threads(),
              next = later < pieces.count() ? pieces(later).panel : o;  // likely this thread's
      for (int64_t c = 0; c < cuts.count; ++c) {
        other.pack(panel, o, cuts.begin(c), cuts.size(c));
        Fetch ahead;
        if (c + 1 < cuts.count) ahead = other.fetch(o, o + 1, cuts.begin(c + 1), cuts.size(c + 1));
        else if (next != o) ahead = other.fetch(next, next + 1, round, cuts.size(0));
        // Not before the last tiles: the panels of the others would drive it from the L2 cache.
        int64_t late = last - 2 - ahead.lines() * steps_per_line / cuts.size(c);
        for (int64_t s = first; s < last; ++s) {
          const float* x = packed_at(s, c);
          float* sum = sums + (cuts.count > 1 ? s - first : 0) * tile_size;
          p.tile(rows_shared ? s : o, rows_shared ? o : s, rows_shared ? x : panel, rows_shared ? panel : x, sum, cuts,
                 c, s >= late ? ahead.before(nullptr) : nullptr);
        }
      }
    });
  }
}

Product product_of(const MatmulProblem& p, int64_t batch, bool accumulate, const TileUpdate* update) {
  auto in_batch = [&](MatmulOperand o) SINTER_LAMBDA_INLINE {
    o.data += int64_t(sizeof(float)) * (batch / p.inner * o.outer_stride + batch % p.inner * o.inner_stride);
    return o;
  };
  return {Panels(in_batch(p.a), p.m, true),
          Panels(in_batch(p.b), p.n, false),
          p.k,
          reinterpret_cast<float*>(in_batch(p.c).data),
          p.c.ld,
          accumulate,
          update};
}

// Both sides packed for every block of c.
void multiply_blocks(const MatmulProblem& problem, bool accumulate, const TileUpdate* update) {
  Product first = product_of(problem, 0, accumulate, update);
  int64_t batches = problem.outer * problem.inner;
  int64_t down = 1, right = 1;  // blocks of each
  auto most = [](int64_t n, int64_t parts) SINTER_LAMBDA_INLINE { return (n + parts - 1) / parts; };
  // Several for each thread, if they are not small: a block of few tiles packs more than it multiplies.
  auto tiles = [&] { return most(first.rows.count, down) * most(first.cols.count, right); };
  while ((batches * down * right < 3 * cpu::threads() && tiles() > 12) || tiles() > max_tiles) {
    bool tall = first.rows.length * right >= first.cols.length * down;
    if (right == first.cols.count || (tall && down < first.rows.count)) down = min_of(2 * down, first.rows.count);
    else right = min_of(2 * right, first.cols.count);
  }
  auto multiply = [&](int64_t t) SINTER_LAMBDA_INLINE {
    Product p = product_of(problem, t / (down * right), accumulate, update);
    const Panels &rows = p.rows, &cols = p.cols;
    int64_t a_panel = block_cut * rows.packed(), b_panel = block_cut * cols.packed();
    float* a = buffer<float>(0, most(rows.count, down) * a_panel + most(cols.count, right) * b_panel);
    float *b = a + most(rows.count, down) * a_panel, *sums = buffer<float>(1, max_tiles * tile_size);
    int64_t i = t / right % down, j = t % right;
    int64_t top = rows.count * i / down, bottom = rows.count * (i + 1) / down;
    int64_t left = cols.count * j / right, end = cols.count * (j + 1) / right;
    for (int64_t round = 0; round < p.k; round += packed_round) {
      Cuts cuts(round, p.k, block_cut);
      for (int64_t c = 0; c < cuts.count; ++c) {
        int64_t from = cuts.begin(c), k = cuts.size(c), rest = min_of(k, p.k - from - k);
        for (int64_t row = top; row < bottom; ++row) rows.pack(a + (row - top) * a_panel, row, from, k);
        for (int64_t col = left; col < end; ++col) cols.pack(b + (col - left) * b_panel, col, from, k);
        Fetch of_a = rows.fetch(top, bottom, from + k, rest), of_b = cols.fetch(left, end, from + k, rest);
        float* sum = sums;
        for (int64_t col = left; col < end; ++col)
          for (int64_t row = top; row < bottom; ++row, sum += tile_size)
            p.tile(row, col, a + (row - top) * a_panel, b + (col - left) * b_panel, sum, cuts, c,
                   of_a.before(of_b.before(nullptr)));
      }
    }
  };
  int64_t several = max_of<int64_t>(1, worth_sharing * down * right / (problem.m * problem.n * problem.k));
  parallel_for(
      batches * down * right, several,
      [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) multiply(t);
      },
      several);
}

}  // namespace

void packed_product(const MatmulProblem& p, bool accumulate, float* space, const TileUpdate* update) {
  Product product = product_of(p, 0, accumulate, update);
  bool rows_shared = p.m <= p.n;
  int64_t other = rows_shared ? product.cols.count : product.rows.count;
  if (!space || other < 3 * cpu::threads()) multiply_blocks(p, accumulate, update);
  else multiply_panels(product, rows_shared, space);
}

}  // namespace sinter::SINTER_CPU_ISA
