// Fused programs as CUDA C++: the text of a kernel, and how to launch it. Needs no CUDA itself. The text depends on the
// program, the operands' types and which of them are rows, columns or single numbers; of the sizes only a row's length
// is in it. So all layers of a model share kernels.
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

// Whether an output is a sum over all rows: the kernel leaves parts of it, one per block, in the workspace.
bool is_column_sum(const FusedProgram& program, int output);

constexpr int64_t max_fused_row = 16384;  // elements

}  // namespace sinter
