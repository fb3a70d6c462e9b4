#include "train/workload.h"

#include "core/range.h"

namespace sinter {

int phase_count(Pass p) { return p == Pass::forward ? 1 : p == Pass::forward_backward ? 2 : 3; }
int phase_count(const RunConfig& c) { return c.mode == Mode::compiled || c.accumulate > 1 ? 0 : phase_count(c.pass); }

Workload::Workload(const RunConfig& c, DeviceType where, const MakeModel& make_model)
    : config_(c), trainer_(c.model, c.trainer_options(where), make_model) {
  for (int64_t i = 0; i < c.accumulate; ++i)
    batches_.push_back(random_batch(c.batch, c.model.ctx, c.model.vocab, c.seed + uint64_t(i), where));
}

void Workload::forward() { trainer_.logits(batches_[0]); }

void Workload::run(const std::function<void(int)>& mark) {
  Tensor result = config_.accumulate > 1           ? trainer_.submit_step(batches_, config_.lr)
                  : config_.mode == Mode::compiled ? replay()
                                                   : pass(mark);
  if (config_.pass != Pass::forward) loss_ = result;
  if (mark && phase_count(config_) == 0) mark(whole_pass);
}

std::vector<const compile::Compiled*> Workload::compiled() const {
  if (compiled_) return {&*compiled_};
  return trainer_.compiled_steps();
}

const compile::Compilation* Workload::compilation() const {
  auto all = compiled();
  return all.empty() ? nullptr : &all.back()->compilation();
}

Tensor Workload::replay() {
  if (!compiled_) {
    if (config_.pass != Pass::forward) trainer_.before_trace(config_.pass == Pass::step);
    if (config_.pass == Pass::step) trainer_.optimizer().set_learning_rate(config_.lr);
    compiled_.emplace([this](const auto&) { return std::vector{pass({})}; }, batches_[0].tokens.device(),
                      config_.compile_options());
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
    Tensor logits = trainer_.logits(batches_[0]);
    done(0);
    return logits;
  }
  parameters().zero_grad();
  Tensor loss = trainer_.loss(batches_[0]);
  done(0);
  trainer_.backward(loss);
  done(1);
  if (config_.pass == Pass::step) {
    trainer_.optimizer_step(config_.lr);
    done(2);
  }
  return loss.detach();
}

}  // namespace sinter
