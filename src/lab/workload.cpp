#include "lab/workload.h"

#include "profile/range.h"

namespace sinter::lab {

int phase_count(Pass p) { return p == Pass::forward ? 1 : p == Pass::forward_backward ? 2 : 3; }

Workload::Workload(const RunConfig& c, DeviceType where, const MakeModel& make_model)
    : config_(c),
      trainer_(c.model, c.trainer_options(where), make_model),
      batch_(random_batch(c.batch, c.model.ctx, c.model.vocab, c.seed, where)) {}

void Workload::forward() { trainer_.logits(batch_); }

void Workload::run(const std::function<void(int)>& mark) {
  auto done = [&](int phase) {
    if (mark) mark(phase);
  };
  std::optional<Range> step;
  if (config_.pass == Pass::step) step.emplace("step", RangeKind::module, Place::here());
  if (config_.pass == Pass::forward) {
    forward();
    return done(0);
  }
  parameters().zero_grad();
  Tensor loss = trainer_.loss(batch_);
  done(0);
  trainer_.backward(loss);
  done(1);
  loss_ = loss.detach();
  if (config_.pass == Pass::forward_backward) return;
  trainer_.optimizer_step(config_.lr);
  done(2);
}

}  // namespace sinter::lab
