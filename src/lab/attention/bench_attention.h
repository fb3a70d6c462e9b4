// The attention benchmark: times of forward and backward, how near they come to what the machine could do, and the
// memory held in between.
#pragma once
#include "lab/attention/result.h"
#include "lab/driver.h"

namespace sinter::lab {

struct AttentionBenchOptions {
  std::string table;                     // which of the known tables this is, or "shapes"
  std::vector<AttentionConfig> configs;  // checked; what is compared stands together
  int64_t warmup = 10, steps = 100;
  double seconds = 0;              // at most so long per configuration and turn; 0: all steps
  std::vector<std::string> peers;  // cudnn, flash, mem_eff, math: PyTorch's
  std::string python = "python3";
};
int bench_attention(const AttentionBenchOptions& options, const OutputOptions& output);

// None if interrupted.
std::optional<AttentionMeasurement> measure(const AttentionConfig& config, const AttentionBenchOptions& options,
                                            int64_t timed, Progress& progress);

// PyTorch's rows for the same shapes, all in one process; a note where there are none.
std::unique_ptr<Case> attention_peer(const AttentionBenchOptions& options);

View bench_attention_view(const Json& record);

}  // namespace sinter::lab
