// fp32 GEMMs by a kernel of our own (Note [Packed products] in packed_product.cpp).
#pragma once
#include "backend/cpu/adamw_rule.h"
#include "backend/matmul_problem.h"

namespace sinter::SINTER_CPU_ISA {

// What becomes of a·b where it is a weight's gradient: rows as those of c.
struct TileUpdate {
  AdamWRule<float> rule;
  float *master, *m, *v;
};

// c = a·b, or c += a·b, of fp32 matrices that are not empty, c's in rows. `space`: packed_bytes for a
// GEMM without batches; nullptr, and nothing is shared between threads. With an update, c only keeps what
// several rounds of k must add up.
void packed_product(const MatmulProblem& p, bool accumulate, float* space, const TileUpdate* update = nullptr);

}  // namespace sinter::SINTER_CPU_ISA
