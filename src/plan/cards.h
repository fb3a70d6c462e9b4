// GPUs people have, and what would make a configuration fit on one of them.
#pragma once
#include "plan/prediction.h"

namespace sinter::plan {

struct Card {
  const char* name;  // "4090-24"
  int64_t bytes;     // what the driver reports in all
  int compute_capability;
};
const std::vector<Card>& known_cards();           // the smallest first
const Card& card_named(const std::string& name);  // refuses unknown ones, listing those there are

// The CUDA context and the libraries' own memory, which the allocator does not see: 533 to 537 MiB in every run on an H200
// with CUDA 13.0 (docs/results).
int64_t typical_outside_bytes();

int64_t device_need(const Need& need);  // segments and what lies outside the allocator
std::string missing_on(const Card& card,
                       const RunConfig& config);  // "bf16", "flash attention": what it lacks; or nothing
bool fits(const Need& need, const RunConfig& config, const Card& card);

// The cheapest change that makes it fit, as flags ("--dtype bf16", "--batch 2"), or nothing if none was found. Cheap is:
// first another attention, then another precision, then fewer sequences, then a shorter context, then a smaller model.
std::string cheapest_change(const RunConfig& config, const Card& card, const MakeModel& make_model);

}  // namespace sinter::plan
