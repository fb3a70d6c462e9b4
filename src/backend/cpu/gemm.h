// fp32 and fp64 GEMMs on OpenBLAS, shared out over our own pool.
#pragma once
#include "backend/matmul_problem.h"

namespace sinter::cpu {

// The rows of c are contiguous: where its columns are, the transposed product is meant. Fails when the call's
// batches need more than two levels.
void problem_of(MatmulProblem& problem, const KernelCall& call);

// c = a·b, or c += a·b, of such a problem. All operands are f32, or all f64.
void gemm(const MatmulProblem& problem, bool accumulate);

// Who computes fp32 GEMMs (Note [Who multiplies] in backend/matmul_problem.h). by_shape: large ones our kernel,
// others OpenBLAS. packed: small and batched ones our kernel too, if they have 16 rows and columns; so it is where
// OpenBLAS runs as a core without AVX2 (openblas_lags in cpu.h).
enum class Products { by_shape, packed, openblas };
Products products();
void set_products(Products who);  // for tests and measurements; not while kernels run

}  // namespace sinter::cpu
