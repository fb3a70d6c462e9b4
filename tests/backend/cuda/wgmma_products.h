// One wgmma product in each form that the attention kernels use, with tiles in shared memory as they lie there.
#pragma once
#include <vector>

#include "core/dtype.h"

namespace sinter::cuda::hopper {

enum class Form {
  rows_rows,         // a (64 × D)·bᵀ (N × D), both read along their rows, from shared memory
  registers_across,  // a (64 × 128) from registers · b (128 × D), read across its rows
  across_across,     // aᵀ (128 × 64) · the 64 columns (or D) from 64·panel on of b (128 × D), both read across
};
struct Product {
  Form form;
  DType type;
  int d, n, panel;
};
bool has_wgmma();
const std::vector<Product>& products();
// a and b hold integers that the type can represent; the result is exact.
std::vector<float> run(const Product& p, const std::vector<float>& a, const std::vector<float>& b);

}  // namespace sinter::cuda::hopper
