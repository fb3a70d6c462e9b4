// fp32 and fp64 products on OpenBLAS, shared out over our own pool.
#pragma once
#include "backend/matmul_problem.h"

namespace sinter::cpu {

// Fails when the call's batches need more than two levels.
void problem_of(MatmulProblem& problem, const KernelCall& call);

// c = a·b, or c += a·b. All operands are f32, or all f64.
void gemm(const MatmulProblem& problem, bool accumulate);

}  // namespace sinter::cpu
