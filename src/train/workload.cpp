#include "train/workload.h"

namespace sinter {

Workload::Workload(const RunConfig& c, DeviceType where, const MakeModel& make_model)
    : pass_(c.pass), trainer_(c.model, c.trainer_options(where), make_model) {
  // Ranks have different batches: equal ones would hide a missing collective.
  auto first = uint64_t(c.group ? c.group->rank() * c.accumulate : 0);
  for (uint64_t i = 0; i < uint64_t(c.accumulate); ++i)
    batches_.push_back(random_batch(c.batch, c.model.ctx, c.model.vocab, c.seed + first + i, where));
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
