#include "train/step_readings.h"

#include "core/check.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

namespace sinter {
namespace {

// Where the numbers of a slot lie.
constexpr int64_t loss_number = 0, stop_number = 1, first_state_number = 2;
constexpr int64_t numbers_of_slot = first_state_number + step_state_size;
constexpr size_t most_under_way = 2;

}  // namespace

StepReadings::Slot::Slot(DeviceType device) : numbers(zeros({numbers_of_slot}, DType::f64, device)), over(device) {}

StepReadings::StepReadings(DeviceType device) : device_(device), restarted_(device) {
  for (size_t i = 0; i < most_under_way + 1; ++i) slots_.push_back(std::make_unique<Slot>(device));
  if (device == DeviceType::cuda) stream_ = backend_of(device).create_stream(StreamRole::copy);
}

StepReadings::~StepReadings() {
  if (stream_) backend_of(device_).destroy_stream(stream_);
}

void StepReadings::submit(int64_t step, const Tensor& loss, const Optimizer& optimizer, bool stop,
                          ProcessGroup* group) {
  check(pending_.size() < most_under_way, "readings of {} steps are under way; take() one first", pending_.size());
  NoGrad off;
  size_t at = std::exchange(next_, (next_ + 1) % slots_.size());
  Slot& slot = *slots_[at];
  auto part = [&](int64_t first, int64_t n) { return slice(slot.numbers, 0, first, n); };
  copy_into(part(loss_number, 1), reshape(loss, {1}));
  fill(part(stop_number, 1), stop ? 1 : 0);
  copy_into(part(first_state_number, step_state_size), optimizer.device_state());
  if (group && group->size() > 1) {
    all_reduce(part(stop_number, 1), *group);
    join_communication(device_);
  }
  slot.over.record();
  pending_.push_back({step, at, std::exchange(last_, &slot.over)});
}

void StepReadings::restart() {
  restarted_.record();
  last_ = &restarted_;
}

Reading StepReadings::take() {
  check(!pending_.empty(), "no step is under way whose numbers could be read");
  auto [step, at, since] = pending_.front();
  pending_.pop_front();
  Slot& slot = *slots_[at];
  slot.over.wait();
  Scoped<void*> apart(context().cuda_stream, stream_);
  std::vector<double> all = to_vector(slot.numbers);
  auto state = [&](StepState which) { return all[size_t(first_state_number + which)]; };
  return {step,
          all[loss_number],
          state(state_grad_norm),
          int64_t(state(state_skipped)),
          all[stop_number] > 0,
          slot.over.ms_since(*since) / 1e3};
}

}  // namespace sinter
