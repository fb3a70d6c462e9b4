// Attention alone: q, k and v at random, forward and backward, as the attention experiments run it.
#pragma once
#include <functional>

#include "plan/attention_limits.h"
#include "system/json.h"

namespace sinter::lab {

struct AttentionConfig : plan::AttentionProblem {
  std::string attention_why;
  Pass pass = Pass::forward_backward;
  Mode mode = Mode::eager;
  std::string passes = "all";  // of the compiler, as compile::passes_named takes them
  uint64_t seed = 0;

  std::string text() const;  // "flash attention, batch 8, heads 16/4, ctx 1024, d 64, bf16, forward"
};
Json to_json(const AttentionConfig& c);
void check_config(const AttentionConfig& c);

class AttentionWork {
 public:
  AttentionWork(const AttentionConfig& config, DeviceType where);
  // One pass: forward, and unless the pass is forward alone, backward. `mark` is called as a phase has been
  // submitted; after forward, what backward needs is held. Compiled, both phases are one trace, cut by a look at the
  // clock.
  void run(const Trainer::Mark& mark = {});
  int64_t grad_bytes() const;  // of o's gradient, as allocated
  // Of q, k, v and, compiled, what the plan keeps from forward for backward; the arena itself is there all the time.
  int64_t planned_held_bytes() const;
  const compile::Compilation* compilation() const { return compiled_ ? &compiled_->compilation() : nullptr; }

 private:
  Tensor forward();
  void backward_from(const Tensor& o);
  void replay(const Trainer::Mark& mark);

  AttentionConfig config_;
  Tensor q_, k_, v_, grad_;
  Trainer::Mark mark_;  // of this pass
  std::optional<compile::Compiled> compiled_;
};
// What compiling may change of the algorithm, for people.
std::string algorithm_text(const AttentionConfig& config);

// From a dry run on the meta device.
struct AttentionNeed {
  int64_t peak_bytes = 0;
  int64_t held_bytes = 0;  // just before backward: q, k, v, o and what forward saved, without o's gradient
};
AttentionNeed predict(const AttentionConfig& config);

}  // namespace sinter::lab
