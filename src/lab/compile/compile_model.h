// What compiling a model's pass does: calls, bytes and memory before and after each compiler pass. Nothing is run, and
// no GPU is needed.
#pragma once
#include "lab/imagined_ranks.h"
#include "lab/output.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct CompileModelOptions {
  SweepOptions sweep;
  bool explain = false;  // also what was done where
  std::string dump;      // FILE.txt, .dot, .html or .json
  ImaginedRanks ranks;
  std::string card;  // the GPU to compile for; empty: the one here, or the largest there is
};
int compile_model(const CompileModelOptions& options, const OutputOptions& output, const MakeModel& make_model);
View compile_view(const Json& record);

}  // namespace sinter::lab
