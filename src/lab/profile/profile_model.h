// Where the time goes: kernels by phase and range, the answers people look for, ops against the roofline.
#pragma once
#include "lab/attention/work.h"
#include "lab/output.h"
#include "lab/sweep.h"
#include "plan/floor.h"
#include "profile/profiler.h"

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

// The fields of a record. Times are per pass; the rows of kernel tables are over all profiled passes, as nsys counts.
struct Roofline {
  double flops = 0, bytes = 0;  // per second; 0: not known
};
Json profile_result(Json config, const Profile& profile, const std::string& range_pattern, const Roofline& roofline,
                    const plan::Floor& floor = {});
// Where a pass's time goes, whether it ran call by call or as one: per part the sum of its kernels' times and its share of the floor.
Json time_parts(const Profile& profile, const plan::Floor& floor);

}  // namespace sinter::lab
