// Where the memory goes: peaks by category and phase, the largest allocations, the timeline; measured or predicted.
#pragma once
#include "lab/imagined_ranks.h"
#include "lab/memory/memory_json.h"
#include "lab/output.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct MemoryOptions {
  SweepOptions sweep;
  bool predict = false;  // on the meta device: nothing is allocated, no GPU is needed
  std::string card;      // the GPU it should fit on
  ImaginedRanks ranks;   // with predict
  std::string snapshot;  // FILE.pickle or .json
  int64_t largest = 10;  // how many allocations to list
};
int memory_model(const MemoryOptions& options, const OutputOptions& output, const MakeModel& make_model);
View memory_view(const Json& record);

}  // namespace sinter::lab
