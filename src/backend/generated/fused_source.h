// Fused programs as CUDA C++: the text of a kernel, and how to launch it. Needs no CUDA itself. The text depends on the program, the operands'
// types and which of them are rows, columns or single numbers; of the sizes only a row's length is in it. So all layers of a model share kernels.
#pragma once
#include <string>

#include "backend/cuda/fused_args.h"
#include "core/fused.h"

namespace sinter {

// What every kernel's text follows: functions.h, fused_args.h and fused_prelude.h.
std::string fused_prelude();

struct FusedText {
  std::string name;  // of the kernel: extern "C", in its text
  std::string text;
};
FusedText fused_text(const KernelCall& call);

struct FusedLaunch {
  unsigned grid = 0, block = 0;
  cuda::FusedArgs args = {};
};
FusedLaunch fused_launch(const KernelCall& call);

// How a program of rows is cut up. Each thread holds `vectors` vectors of its row.
struct FusedRows {
  int64_t rows = 0;
  int length = 0, vector = 4, vectors = 1, threads_per_row = 32, block = 128;
  int column_sums = 0;  // outputs that are sums over all rows, left in parts, one part per block
  int row_lanes() const { return block / threads_per_row; }
};
FusedRows fused_rows(const KernelCall& call);
bool is_column_sum(const FusedProgram& program, int output);

constexpr int64_t max_fused_row = 16384;

}  // namespace sinter
