// Data parallelism by strategy: the same step, communicated in four ways, and without communication.
#pragma once
#include "dist/data_parallel.h"
#include "lab/ranked_step.h"
#include "lab/view.h"

namespace sinter::lab {

struct DdpOptions : RankedOptions {
  std::vector<std::string> strategies;  // none: the step without communication
  std::vector<double> bucket_mb;
  int64_t check_replicas = 0;  // every so many steps; 0: never
  std::vector<std::string> peers;
  std::string python = "python3";
};

// PyTorch's own ranks doing the same, in rank 0's hands while the others wait. `peer`: torch-ddp, torch-none (the step
// without communication), either with -compiled, or torch-fsdp.
std::unique_ptr<Case> torch_ddp_case(dist::World& world, const DdpOptions& options, const MeasuredRun& run,
                                     int64_t ranks, const std::string& peer);
void check_ddp_peer(const std::string& peer);

int bench_ddp(const DdpOptions& options, const OutputOptions& output, const MakeModel& make_model);
View bench_ddp_view(const Json& record);

// Lanes of a step over time, one step under the other on one scale; from the rows of a record.
std::string lanes_picture(const std::string& title, const std::vector<const Json*>& rows);

}  // namespace sinter::lab
