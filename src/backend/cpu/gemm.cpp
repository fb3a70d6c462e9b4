// Note [Products in blocks]: OpenBLAS runs single-threaded inside our pool's threads. Batches are shared out whole; a
// GEMM that cannot fill the threads by batches is cut into a grid of blocks of C. The sum over k is never cut, so an
// element is always one dot product. Still, OpenBLAS may round differently near the edge of a block than inside it: its
// AVX-512 kernels do not (blocks begin at multiples of 64), its AVX2 kernels do. One thread uses the grid of two, at a
// cost of about 1 %, so 1 and 2 threads always agree to the bit; with more, the last bit of a GEMM may depend on how
// many there are.
#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cblas.h>
#include <climits>
#include <cstring>
#include <numeric>
#include <strings.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/support.h"
#include "backend/cpu/thread_pool.h"
#include "core/error.h"

extern "C" {  // declared here too, because a cblas.h from another BLAS package lacks them
void openblas_set_num_threads(int);
char* openblas_get_config(void);
char* openblas_get_corename(void);
}

namespace sinter {
namespace cpu {
namespace {

constexpr int64_t block_multiple = 64;       // a multiple of every OpenBLAS register tile
constexpr double flops_worth_sharing = 2e5;  // some microseconds: less is done sooner than it is handed over

struct Grid {
  int64_t rows = 1, cols = 1;  // blocks along m and n
  int64_t row_step = 0, col_step = 0;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t step_for(int64_t length, int64_t parts) {
  int64_t step = ceil_div(length, parts);
  return parts == 1 ? length : std::min(length, ceil_div(step, block_multiple) * block_multiple);
}

// Every block packs its rows of A and its columns of B anew: the best grid has the smallest half perimeter.
Grid choose_grid(int64_t m, int64_t n, int64_t parts) {
  Grid best{1, 1, m, n};
  double least = 0.75 * double(m) * double(n);  // a cut must pay: the largest block is what we wait for
  for (int64_t rows = 1; rows <= parts; ++rows) {
    if (parts % rows) continue;
    int64_t row_step = step_for(m, rows), col_step = step_for(n, parts / rows);
    Grid g{ceil_div(m, row_step), ceil_div(n, col_step), row_step, col_step};
    // The largest block, and the packing it needs.
    double cost = double(row_step) * double(col_step) * (1 + 16.0 / double(row_step) + 16.0 / double(col_step));
    if (cost < least) {
      least = cost;
      best = g;
    }
  }
  return best;
}

template <class T>
void multiply(const MatmulOperand& a, const MatmulOperand& b, const MatmulOperand& c, int64_t m, int64_t n, int64_t k,
              bool accumulate) {
  auto ta = a.transposed ? CblasTrans : CblasNoTrans, tb = b.transposed ? CblasTrans : CblasNoTrans;
  auto* pa = reinterpret_cast<const T*>(a.data);
  auto* pb = reinterpret_cast<const T*>(b.data);
  auto* pc = reinterpret_cast<T*>(c.data);
  int im = int(m), in = int(n), ik = int(k), lda = int(a.ld), ldb = int(b.ld), ldc = int(c.ld);
  T beta = accumulate ? 1 : 0;
  if constexpr (sizeof(T) == 4) cblas_sgemm(CblasRowMajor, ta, tb, im, in, ik, 1, pa, lda, pb, ldb, beta, pc, ldc);
  else cblas_dgemm(CblasRowMajor, ta, tb, im, in, ik, 1, pa, lda, pb, ldb, beta, pc, ldc);
}

// The operand from row `r` and column `c` on, in the terms of the product, in batch (outer, inner).
template <class T> MatmulOperand part_of(MatmulOperand x, int64_t outer, int64_t inner, int64_t r, int64_t c) {
  int64_t offset = outer * x.outer_stride + inner * x.inner_stride + (x.transposed ? c * x.ld + r : r * x.ld + c);
  x.data += offset * int64_t(sizeof(T));
  return x;
}

template <class T> void run(const MatmulProblem& p, bool accumulate) {
  int64_t batches = p.outer * p.inner, team = std::max(2, threads());
  double flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
  bool cut = flops * double(batches) > flops_worth_sharing && batches < 4 * team;
  Grid g = choose_grid(p.m, p.n, cut ? team / std::gcd(team, batches) : 1);
  int64_t blocks = g.rows * g.cols;
  int64_t grain = std::max<int64_t>(1, int64_t(flops_worth_sharing / (flops / double(blocks))));
  parallel_for(batches * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t batch = task / blocks, block = task % blocks, outer = batch / p.inner, inner = batch % p.inner;
      int64_t r = block / g.cols * g.row_step, c = block % g.cols * g.col_step;
      multiply<T>(part_of<T>(p.a, outer, inner, r, 0), part_of<T>(p.b, outer, inner, 0, c),
                  part_of<T>(p.c, outer, inner, r, c), std::min(g.row_step, p.m - r), std::min(g.col_step, p.n - c),
                  p.k, accumulate);
    }
  });
}

void clear(const MatmulProblem& p) {
  for (int64_t batch = 0; batch < p.outer * p.inner; ++batch)
    for (int64_t r = 0; r < p.m; ++r) {
      int64_t offset = batch / p.inner * p.c.outer_stride + batch % p.inner * p.c.inner_stride + r * p.c.ld;
      std::memset(p.c.data + offset * size_of(p.c.dtype), 0, size_t(p.n * size_of(p.c.dtype)));
    }
}

// A column-major C is the row-major transpose: Cᵀ = Bᵀ·Aᵀ.
void make_row_major(MatmulProblem& p) {
  if (!p.c.transposed) return;
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  p.a.transposed = !p.a.transposed;
  p.b.transposed = !p.b.transposed;
  p.c.transposed = false;
}

Products& who_multiplies() {
  static Products who = openblas_lags() ? Products::packed : Products::by_shape;
  return who;
}

}  // namespace

Products products() { return who_multiplies(); }
void set_products(Products who) { who_multiplies() = who; }

void problem_of(MatmulProblem& p, const KernelCall& call) {
  if (!matmul_problem(call, p)) refuse("matmul", "batch dimensions with more than two different strides", call);
  for (int64_t x : {p.m, p.n, p.k, p.a.ld, p.b.ld, p.c.ld})
    if (x > INT_MAX) refuse("matmul", "a matrix dimension exceeds what OpenBLAS can count (2^31 - 1)", call);
  make_row_major(p);
}

void gemm(const MatmulProblem& p, bool accumulate) {
  // OpenBLAS must not start threads of its own, whichever variant of it (pthread, OpenMP, serial) is installed. Not
  // sooner than here: a program that only wants our attention may have GEMMs of its own.
  [[maybe_unused]] static const bool claimed = (openblas_set_num_threads(1), true);
  if (p.m == 0 || p.n == 0 || p.outer * p.inner == 0) return;
  if (p.k == 0) {
    if (!accumulate) clear(p);
  } else if (p.c.dtype == DType::f64) {
    run<double>(p, accumulate);
  } else {
    run<float>(p, accumulate);
  }
}

}  // namespace cpu

std::string openblas_description() {
  return std::string(openblas_get_config()) + ", running as " + openblas_get_corename();
}

// OpenBLAS chose its kernels when it was loaded, by the CPU's model number. One that is newer than the library may get
// those of a core without AVX2. Those of one with AVX2 are good enough: where the CPU has AVX-512 ours are then no
// faster on AMD's, and few GEMMs go to OpenBLAS anyway.
bool openblas_lags() {
  for (const char* core : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"})
    if (strcasecmp(openblas_get_corename(), core) == 0) return false;
  return true;
}

std::string cpu_products_description() {
  std::string core = openblas_get_corename();
  if (cpu::products() == cpu::Products::packed)
    return "our kernel: OpenBLAS runs as " + core + ", without AVX2, where the CPU has " + cpu_isa_name() +
           "; fp64, and less than 16 rows or columns: OpenBLAS";
  return "our kernel from 64 × 64 × 64 and 2²² terms on; smaller, batched and fp64 ones: OpenBLAS, whose core " + core +
         " has AVX2 at least";
}

}  // namespace sinter
