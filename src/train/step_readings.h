// What the host wants to know of steps, read while the device is already at the next one.
#pragma once
#include <deque>
#include <vector>

#include "backend/process_group.h"
#include "ops/context.h"

namespace sinter {

class Optimizer;

struct Reading {
  int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;  // where the optimizer needs it
  int64_t skipped = 0;       // updates, so far
  bool stop = false;         // some rank wants to
  double seconds = 0;        // from the end of the step before it, or from restart(), by the device's clock
};

class StepReadings {
 public:
  explicit StepReadings(DeviceType device);
  ~StepReadings();
  StepReadings(const StepReadings&) = delete;
  StepReadings& operator=(const StepReadings&) = delete;

  // What the caller's stream has done so far belongs to no step: an evaluation, say. Also before the first step.
  void restart();
  // After the step was submitted; by all ranks, of which any may say that it wants to stop. Does not wait. At most two
  // may be under way.
  void submit(int64_t step, const Tensor& loss, const Optimizer& optimizer, bool stop, ProcessGroup* group);
  size_t under_way() const { return pending_.size(); }
  Reading take();  // the oldest; waits until its step is over, but for nothing later

 private:
  struct Slot {
    explicit Slot(DeviceType device);
    Tensor numbers;  // f64: the loss, how many ranks want to stop, the optimizer's state
    Event over;
  };
  struct Pending {
    int64_t step;
    size_t slot;
    const Event* since;
  };
  DeviceType device_;
  void* stream_ = nullptr;                    // that reads; null: the CPU needs none
  std::vector<std::unique_ptr<Slot>> slots_;  // one more than may be under way: the events of the step before
  size_t next_ = 0;
  Event restarted_;
  const Event* last_ = &restarted_;
  std::deque<Pending> pending_;
};

}  // namespace sinter
