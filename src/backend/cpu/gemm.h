// fp32 and fp64 products on OpenBLAS, shared out over our own pool.
#pragma once
#include "backend/matmul_problem.h"

namespace sinter::cpu {

// Fails when the call's batches need more than two levels.
void problem_of(MatmulProblem& problem, const KernelCall& call);

// c = a·b, or c += a·b. All operands are f32, or all f64.
void gemm(const MatmulProblem& problem, bool accumulate);

// One small product in the calling thread: c (m×n) = alpha · op(a)·op(b), or c += that; op transposes where the flag says so.
// Matrices are row-major with leading dimensions.
void multiply_tile(float* c, int64_t ldc, const float* a, int64_t lda, bool transpose_a, const float* b, int64_t ldb,
                   bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, bool accumulate);
void multiply_tile(double* c, int64_t ldc, const double* a, int64_t lda, bool transpose_a, const double* b, int64_t ldb,
                   bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, bool accumulate);

// OpenBLAS must not start threads of its own, whichever variant of it (pthread, OpenMP, serial) is installed.
void claim_blas_threads();

}  // namespace sinter::cpu
