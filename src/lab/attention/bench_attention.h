// The attention benchmark: times of forward and backward, how near they come to what the machine could do, and the
// memory held in between.
#pragma once
#include "lab/attention/work.h"
#include "lab/measure.h"
#include "train/workload.h"

namespace sinter::lab {

struct AttentionBenchOptions {
  std::string table;                     // which of the known tables this is, or "shapes"
  std::vector<AttentionConfig> configs;  // checked; what is compared stands together
  int64_t warmup = 10, steps = 100;
  double seconds = 0;              // at most so long per configuration and turn; 0: all steps
  std::vector<std::string> peers;  // cudnn, flash, mem_eff, math: PyTorch's
  std::string python = "python3";
};
int bench_attention(const AttentionBenchOptions& options, OutputOptions output);

// What a configuration gave in all turns.
struct AttentionMeasurement {
  Measurement device;  // queued ahead of the device, so that phases are device time alone
  Measurement host;    // as a program calls it: wall clock with the host's part
  int64_t held_bytes = 0, peak_bytes = 0;
  Json compiled;  // what compiling did and cost; null: eager
  void append(const AttentionMeasurement& later);
};
// None if interrupted.
std::optional<AttentionMeasurement> measure(const AttentionConfig& config, const AttentionBenchOptions& options,
                                            int64_t timed, Progress& progress);

Json attention_result(const AttentionConfig& c, const AttentionNeed& need, const AttentionMeasurement& m,
                      plan::Peaks& peaks);
Json attention_oom(const AttentionConfig& c, const AttentionNeed& need, const std::string& reason, int64_t free_bytes);
std::string why_it_does_not_fit(const AttentionConfig& c, const AttentionNeed& need, int64_t free_bytes);
Json growth_of(const Json& results);  // fitted exponents of held memory in ctx

// PyTorch's rows for the same shapes, all in one process; a note where there are none.
Json attention_peer_results(const AttentionBenchOptions& options, Json& notes, Progress& progress);
Json phase_json(const std::vector<double>& samples, double flops);  // the same for both sides

}  // namespace sinter::lab
