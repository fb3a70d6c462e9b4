// What choosing algorithms for products cost a run, and which it ran with.
#pragma once
#include "backend/cuda/cuda.h"
#include "system/json.h"

namespace sinter::lab {

// "tuning" and "matmul_table" of a result; nothing where no product ran on CUDA.
void add_tuning(Json& result, const ProductTuning& tuning);
std::string tuning_text(const Json& result);  // "tuned 31 products in 2.1 s", or nothing

}  // namespace sinter::lab
