// Attention alone: q, k and v at random, forward and backward, as the attention experiments run it.
#pragma once
#include <functional>

#include "lab/run_config.h"

namespace sinter::lab {

struct AttentionConfig {
  int64_t batch = 8, heads = 1, ctx = 1024, head_dim = 64;
  bool causal = true;
  std::string implementation = "naive";  // or flash
  DeviceType device = DeviceType::cpu;
  Precision precision;  // of q, k and v
  Pass pass = Pass::forward_backward;
  uint64_t seed = 0;

  std::string text() const;  // "flash attention, batch 8, heads 1, ctx 1024, d 64, bf16, forward"
};
Json to_json(const AttentionConfig& c);
// --attention: naive, flash (refused where the device has no kernel for it), or auto: flash where there is one.
std::string implementation_named(const std::string& name, DeviceType device);
void check_config(const AttentionConfig& c);

class AttentionWork {
 public:
  AttentionWork(const AttentionConfig& config, DeviceType where);
  void run();

 private:
  AttentionConfig config_;
  Tensor q_, k_, v_, seed_;
};
int64_t predict_bytes(const AttentionConfig& config);  // the allocator's peak, from a dry run

}  // namespace sinter::lab
