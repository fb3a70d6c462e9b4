#include "lab/workload.h"

#include "profile/range.h"
#include "train/attention_passes.h"

namespace sinter::lab {

int phase_count(Pass p) { return p == Pass::forward ? 1 : p == Pass::forward_backward ? 2 : 3; }

Workload::Workload(const RunConfig& c, DeviceType where, const MakeModel& make_model)
    : config_(c),
      trainer_(c.model, c.trainer_options(where), make_model),
      batch_(random_batch(c.batch, c.model.ctx, c.model.vocab, c.seed, where)) {}

void Workload::forward() { trainer_.logits(batch_); }

void Workload::run(const std::function<void(int)>& mark) {
  Tensor result = config_.mode == Mode::compiled ? replay() : pass(mark);
  if (config_.pass != Pass::forward) loss_ = result;
  if (mark && config_.mode == Mode::compiled) mark(whole_pass);
}

Tensor Workload::replay() {
  if (!compiled_) {
    if (config_.pass != Pass::forward) trainer_.before_trace(config_.pass == Pass::step);
    if (config_.pass == Pass::step) trainer_.optimizer().set_learning_rate(config_.lr);
    compile::CompileOptions options = with_attention(compile::passes_named(config_.passes), config_.model.attention);
    options.memory_budget = int64_t(config_.memory_budget * 1024 * 1024 * 1024);
    compiled_.emplace([this](const auto&) { return std::vector{pass({})}; }, batch_.tokens.device(), options);
  }
  trainer_.before_replay();
  Tensor result = (*compiled_)({})[0];
  trainer_.after_replay();
  return result;
}

Tensor Workload::pass(const std::function<void(int)>& mark) {
  auto done = [&](int phase) {
    if (mark) mark(phase);
  };
  std::optional<Range> step;
  if (config_.pass == Pass::step) step.emplace("step", RangeKind::module, Place::here());
  if (config_.pass == Pass::forward) {
    Tensor logits = trainer_.logits(batch_);
    done(0);
    return logits;
  }
  parameters().zero_grad();
  Tensor loss = trainer_.loss(batch_);
  done(0);
  trainer_.backward(loss);
  done(1);
  if (config_.pass == Pass::step) {
    trainer_.optimizer_step(config_.lr);
    done(2);
  }
  return loss.detach();
}

}  // namespace sinter::lab
