// fp32 products of two whole matrices, for compiled steps (Note [Packed products] in packed_product.cpp).
#pragma once
#include "backend/cpu/adamw_rule.h"
#include "backend/matmul_problem.h"

namespace sinter::SINTER_CPU_ISA {

// fp32, no batches, rows of c contiguous, nothing empty.
bool can_pack(const MatmulProblem& p);

// What becomes of a·b where it is a weight's gradient: rows as those of c.
struct TileUpdate {
  AdamWRule<float> rule;
  float *master, *m, *v;
};

// c = a·b, or c += a·b. `space`: workspace::packed_product. With an update, c only keeps what several rounds of k must add up.
void packed_product(const MatmulProblem& p, bool accumulate, float* space, const TileUpdate* update = nullptr);

}  // namespace sinter::SINTER_CPU_ISA
