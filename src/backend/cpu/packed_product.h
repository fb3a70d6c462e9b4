// fp32 products of two whole matrices, for compiled steps (Note [Packed products] in packed_product.cpp).
#pragma once
#include "backend/cpu/isa.h"
#include "backend/matmul_problem.h"

namespace sinter::SINTER_CPU_ISA {

// fp32, no batches, rows of c contiguous, nothing empty.
bool can_pack(const MatmulProblem& p);

// c = a·b, or c += a·b. `space`: workspace::packed_product.
void packed_product(const MatmulProblem& p, bool accumulate, float* space);

}  // namespace sinter::SINTER_CPU_ISA
