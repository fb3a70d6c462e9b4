// Where the time goes: kernels by phase and range, the answers people look for, ops against the roofline.
#pragma once
#include "lab/attention/work.h"
#include "lab/output.h"
#include "lab/profile/result.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct ProfileOptions {
  ProfilerChoice profiler = ProfilerChoice::automatic;
  std::string range;  // kernels of the ranges that match, in a table of their own
  std::string trace;  // FILE
  int64_t top = 10;   // rows of a kernel table
};
int profile_model(const SweepOptions& sweep, const ProfileOptions& options, const OutputOptions& output,
                  const MakeModel& make_model);
int profile_attention(const std::vector<AttentionConfig>& configs, int64_t warmup, int64_t passes,
                      const ProfileOptions& options, const OutputOptions& output);
View profile_view(const Json& record);

}  // namespace sinter::lab
