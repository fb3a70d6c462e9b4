// Sums over any set of dimensions, and the sum of squares behind the gradient norm.
#include "backend/cpu/reduce.h"

#include "backend/cpu/strips.h"
#include "backend/workspace.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t strip = 1024;
constexpr int64_t most_partials = int64_t(1) << 20;

// The dimensions of x in two loop nests: those kept (the outputs) and those summed over.
// Dimensions that run on are merged.
struct Nest {
  int rank = 0;
  int64_t dims[max_rank], strides[max_rank];
  int64_t numel = 1;

  void add(int64_t n, int64_t stride) {
    numel *= n;
    if (n == 1) return;
    if (rank > 0 && strides[rank - 1] == n * stride) {
      dims[rank - 1] *= n;
    } else {
      dims[rank++] = n;
    }
    strides[rank - 1] = stride;
  }
  SINTER_INLINE int64_t inner() const { return rank ? dims[rank - 1] : 1; }
  SINTER_INLINE int64_t inner_stride() const { return rank ? strides[rank - 1] : 1; }
  SINTER_INLINE Walk rows(int64_t row) const { return Walk(rank ? rank - 1 : 0, dims, strides, row); }
};

struct Reduction {
  Nest kept, summed;
  const char* data;
  DType dtype;

  SINTER_INLINE const char* at(int64_t offset) const { return data + offset * size_of(dtype); }

  template <class A> SINTER_INLINE const A* read(int64_t offset, int64_t n, int64_t stride, A* spare) const {
    if (dtype == dtype_for<A> && stride == 1) return reinterpret_cast<const A*>(at(offset));
    load_strip(spare, at(offset), dtype, n, stride);
    return spare;
  }

  // One output, from x at `offset`: the sum over strips [begin, end) of the innermost runs of the summed nest.
  int64_t strips_per_run() const { return (summed.inner() + strip - 1) / strip; }

  template <class A> A sum_of_strips(int64_t offset, int64_t begin, int64_t end, A* spare) const {
    int64_t per_run = strips_per_run(), n = summed.inner(), stride = summed.inner_stride();
    Walk walk = summed.rows(begin / per_run);
    int64_t i = begin % per_run * strip;
    A total = 0;
    for (int64_t k = begin; k < end; ++k) {
      int64_t m = min_of(strip, n - i);
      const A* x = read(offset + walk.offset + i * stride, m, stride, spare);
      total += lane_sum<A>(m, [&](auto at) SINTER_LAMBDA_INLINE { return at(x); });
      if ((i += strip) >= n) {
        i = 0;
        walk.next();
      }
    }
    return total;
  }

  // A stretch of n neighbouring outputs at once, adding summed elements [begin, end) of each one after the other.
  template <class A>
  void sum_of_columns(A* out, int64_t n, int64_t offset, int64_t begin, int64_t end, A* spare) const {
    int64_t length = summed.inner(), step = summed.inner_stride(), stride = kept.inner_stride();
    Walk walk = summed.rows(begin / length);
    int64_t i = begin % length;
    for (int64_t j = 0; j < n; ++j) out[j] = 0;
    for (int64_t k = begin; k < end; ++k) {
      const A* x = read(offset + walk.offset + i * step, n, stride, spare);
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) out[j] += x[j];
      if (++i == length) {
        i = 0;
        walk.next();
      }
    }
  }
};

// The summed elements are cut into groups (always the same ones), so that a few long sums keep all threads busy and
// rounding errors do not grow with the whole length; the groups' sums are added in order.
template <class A> void reduce(const KernelCall& call, const Reduction& r) {
  bool columns = r.kept.rank > 0 && (r.summed.rank == 0 || r.kept.inner_stride() < r.summed.inner_stride());
  int64_t outputs = r.kept.numel, inner = r.kept.inner();
  int64_t width = columns ? min_of(strip, inner) : 1;  // outputs done together
  int64_t across = (inner + width - 1) / width, stretches = outputs / inner * across;
  int64_t steps = columns ? r.summed.numel : r.summed.numel / r.summed.inner() * r.strips_per_run();
  int64_t step_elements = columns ? width : min_of(strip, r.summed.inner());
  int64_t wanted = min_of<int64_t>(64, steps * step_elements / elements_per_range);
  int64_t groups = max_of<int64_t>(1, min_of(min_of(steps, wanted), most_partials / outputs));
  A* partial = groups > 1 ? buffer<A>(cpu::call_slot, groups * outputs) : nullptr;
  const TensorRef& y = call.out[0];
  auto store = [&](int64_t first, int64_t n, const A* sums) {
    store_strip(y.as<char>() + first * size_of(y.dtype), y.dtype, n, 1, sums, call.accumulates(0));
  };
  int64_t work = step_elements * max_of<int64_t>(1, steps / groups);
  parallel_for(stretches * groups, rows_per_range(work), [&](int64_t begin, int64_t end) {
    A *spare = buffer<A>(0, strip), *sums = buffer<A>(1, strip);
    for (int64_t task = begin; task < end; ++task) {
      int64_t group = task / stretches, s = task % stretches, row = s / across, col = s % across * width;
      int64_t first = group * steps / groups, last = (group + 1) * steps / groups;
      int64_t offset = r.kept.rows(row).offset + col * r.kept.inner_stride();
      int64_t output = row * inner + col, n = min_of(width, inner - col);
      A* out = partial ? partial + group * outputs + output : sums;
      if (columns) r.sum_of_columns(out, n, offset, first, last, spare);
      else *out = r.sum_of_strips(offset, first, last, spare);
      if (!partial) store(output, n, out);
    }
  });
  if (!partial) return;
  parallel_for(outputs, elements_per_range / groups, [&](int64_t begin, int64_t end) {
    for (int64_t g = 1; g < groups; ++g) {
      const A* more = partial + g * outputs;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) partial[i] += more[i];
    }
    store(begin, end - begin, partial + begin);
  });
}

}  // namespace

void reduce_sum(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0];
  uint32_t mask = call.attrs.as<ReduceAttrs>().dims;
  Reduction r{{}, {}, x.as<char>(), x.dtype};
  for (int d = 0; d < x.rank; ++d) ((mask >> d) & 1u ? r.summed : r.kept).add(x.dims[d], x.strides[d]);
  if (r.kept.numel == 0) return;
  if (r.summed.numel == 0) {  // a sum of nothing is 0
    r.summed = Nest();
    r.summed.numel = 0;
  }
  if (!is_float(x.dtype) && !is_float(y.dtype)) return reduce<int64_t>(call, r);
  with_compute_type(x.dtype == DType::f64 || y.dtype == DType::f64, [&]<class A>() { reduce<A>(call, r); });
}

// In fp64, because a gradient of 1e20 is a fact to report, not a reason to call the norm infinite.
void sum_squares(const KernelCall& call) {
  const TensorRef& x = call.in[0];
  int64_t n = numel(x), bytes = size_of(x.dtype);
  double* sums = call.out[0].as<double>();
  parallel_for(numel(call.out[0]), elements_per_range / squares_block, [&](int64_t begin, int64_t end) {
    double* spare = buffer<double>(0, strip);
    for (int64_t b = begin; b < end; ++b) {
      double total = 0;
      for (int64_t i = b * squares_block, stop = min_of(n, i + squares_block); i < stop; i += strip) {
        int64_t m = min_of(strip, stop - i);
        load_strip(spare, x.as<char>() + i * bytes, x.dtype, m, 1);
        total += lane_sum<double>(m, [&](auto at) SINTER_LAMBDA_INLINE { return at(spare) * at(spare); });
      }
      sums[b] = total;
    }
  });
}

}  // namespace sinter::SINTER_CPU_ISA
