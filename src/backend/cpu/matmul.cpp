// GEMMs, by OpenBLAS or by our own kernel (Note [Who multiplies] in backend/matmul_problem.h). 16-bit operands are
// widened into the workspace, multiplied in fp32 and the result rounded back (or not, when the output is fp32).
#include "backend/cpu/gemm.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// A batched matrix as it is stored: `outer`·`inner` matrices of rows × cols.
struct Stored {
  MatmulOperand at;
  int64_t outer, inner, rows, cols;

  Stored(const MatmulOperand& o, const MatmulProblem& p, int64_t m, int64_t n)
      : at(o),
        outer(o.outer_stride ? p.outer : 1),  // shared by all batches when the stride is 0
        inner(o.inner_stride ? p.inner : 1),
        rows(o.transposed ? n : m),
        cols(o.transposed ? m : n) {}

  int64_t numel() const { return outer * inner * rows * cols; }

  // The same matrices as fp32 at `data`, one after the other.
  MatmulOperand widened(float* data) const {
    MatmulOperand o = at;
    o.data = reinterpret_cast<char*>(data);
    o.dtype = DType::f32;
    o.ld = max_of<int64_t>(1, cols);
    o.inner_stride = at.inner_stride ? rows * cols : 0;
    o.outer_stride = at.outer_stride ? inner * rows * cols : 0;
    return o;
  }

  template <class F> void for_each_row(const F& visit) const {
    parallel_for(outer * inner * rows, rows_per_range(cols), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t batch = i / rows, r = i % rows;
        int64_t offset = batch / inner * at.outer_stride + batch % inner * at.inner_stride + r * at.ld;
        visit(at.data + offset * size_of(at.dtype), i * cols);
      }
    });
  }
  void widen(float* data) const {
    for_each_row([&](const char* row, int64_t i) { load_strip(data + i, row, at.dtype, cols, 1); });
  }
  void narrow(const float* data, bool accumulate) const {
    for_each_row([&](char* row, int64_t i) { store_strip(row, at.dtype, cols, 1, data + i, accumulate); });
  }
};

// All operands are f32, or all f64. `space` is what a packed GEMM needs.
void multiply(const MatmulProblem& p, bool accumulate, float* space) {
  cpu::Products who = cpu::products();
  // With fewer rows or columns most of a tile would be thrown away.
  bool fills_tiles = p.m >= 16 && p.n >= 16 && p.k > 0 && p.outer * p.inner > 0 && p.c.dtype == DType::f32;
  if (is_packed(p) && who != cpu::Products::openblas) packed_product(p, accumulate, space);
  else if (fills_tiles && who == cpu::Products::packed) packed_product(p, accumulate, nullptr);
  else cpu::gemm(p, accumulate);
}

}  // namespace

void matmul(const KernelCall& call) {
  MatmulProblem p;
  cpu::problem_of(p, call);
  bool accumulate = call.accumulates(0);
  if (call.n_in == 3) {
    Stored from({call.in[2].as<char>(), p.c.dtype, p.c.ld, p.c.transposed, p.c.inner_stride, p.c.outer_stride}, p, p.m,
                p.n),
        to(p.c, p, p.m, p.n);
    char *first = from.at.data, *target = to.at.data;
    if (first != target)
      from.for_each_row([&](char* row, int64_t) {
        std::memcpy(target + (row - first), row, size_t(from.cols * size_of(p.c.dtype)));
      });
    accumulate = true;
  }
  float* space = static_cast<float*>(call.workspace);
  if (!is_16bit(p.a.dtype)) return multiply(p, accumulate, space);

  Stored a(p.a, p, p.m, p.k), b(p.b, p, p.k, p.n), c(p.c, p, p.m, p.n);
  float* wide_a =
      space + (is_packed(p) ? packed_bytes(p.m, p.n, p.k) / 4 : 0);  // panels come first: they want whole cache lines
  float *wide_b = wide_a + a.numel(), *wide_c = wide_b + b.numel();
  p.a = a.widened(wide_a);
  a.widen(wide_a);
  p.b = b.widened(wide_b);
  b.widen(wide_b);
  if (p.c.dtype == DType::f32) return multiply(p, accumulate, space);

  p.c = c.widened(wide_c);
  multiply(p, false, space);
  c.narrow(wide_c, accumulate);
}

}  // namespace sinter::SINTER_CPU_ISA
