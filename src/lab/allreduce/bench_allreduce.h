// The all-reduce benchmark: how long the ranks of a group need to add up a buffer, through which backend.
#pragma once
#include "lab/allreduce/result.h"
#include "lab/ranks.h"

namespace sinter::lab {

struct AllReduceOptions {
  RankOptions ranks;
  std::vector<double> mb = {1, 10, 100};  // 10⁶ bytes
  std::vector<std::string> backend;       // empty: all that this build and these ranks have
  std::optional<std::string> device;      // where the buffers lie
  std::vector<std::string> dtype = {"fp32"};
  int64_t warmup = 2, steps = 20;
  double seconds = 3;  // of a case: then no more runs are made, but some in any case
  int64_t turns = 2;
  bool torch = false;  // also PyTorch's Gloo, with ranks of its own
  std::string python = "python3";
};
void check_options(const AllReduceOptions& options);
// In every rank of the world.
int bench_allreduce(dist::World& world, const AllReduceOptions& options, const OutputOptions& output);

View bench_allreduce_view(const Json& record);

}  // namespace sinter::lab
