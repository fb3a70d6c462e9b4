#include "train/workload.h"

namespace sinter {

Workload::Workload(const RunConfig& c, DeviceType where, const MakeModel& make_model)
    : pass_(c.pass), trainer_(c.model, c.trainer_options(where), make_model) {
  for (int64_t i = 0; i < c.accumulate; ++i)
    batches_.push_back(random_batch(c.batch, c.model.ctx, c.model.vocab, c.seed + uint64_t(i), where));
}

void Workload::run(const Trainer::Mark& mark) {
  Tensor result = trainer_.run(pass_, batches_, mark);
  if (pass_ != Pass::forward) loss_ = result;
}

const compile::Compilation* Workload::compilation() const {
  auto all = trainer_.replayed();
  return all.empty() ? nullptr : &all.back().compiled->compilation();
}

int phases_of(const RunConfig& c) {
  if (c.mode == Mode::compiled || c.accumulate > 1) return 0;
  return c.pass == Pass::step ? 3 : c.pass == Pass::forward_backward ? 2 : 1;
}

}  // namespace sinter
