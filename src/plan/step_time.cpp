#include "plan/step_time.h"

#include "compile/passes.h"
#include "train/workload.h"

namespace sinter::plan {
namespace {

void take_compiled(StepWork& t, const RunConfig& run, const MakeModel& make_model, int64_t per_node) {
  Workload work(run, DeviceType::meta, make_model);
  work.run();
  for (const Trainer::Replayed& r : work.trainer().replayed()) {
    t.parts.push_back(work_of(r.compiled->compilation().executable->graph(), run.precision.name, false, per_node));
    t.times.push_back(1);
  }
  // First and last once each; what is between them stands for all the others.
  int64_t others = run.accumulate - int64_t(t.parts.size());
  if (t.parts.size() > 1) t.times[t.parts.size() == 2 ? 0 : 1] += others;
}

void take_eager(StepWork& t, const RunConfig& run, const MakeModel& make_model, int64_t per_node) {
  Trainer trainer(run.model, run.trainer_options(DeviceType::meta), make_model);
  Batch batch = random_batch(run.batch, run.model.ctx, run.model.vocab, run.seed, DeviceType::meta);
  auto traced = [&](Pass pass) {
    compile::Graph graph = trainer.trace(pass, batch);
    if (run.group && run.shard.level == ShardLevel::parameters) compile::passes::gathers(graph, {});  // two ahead
    return work_of(graph, run.precision.name, true, per_node);
  };
  if (run.accumulate > 1) t.parts.push_back(traced(Pass::forward_backward)), t.times.push_back(run.accumulate - 1);
  t.parts.push_back(traced(run.pass)), t.times.push_back(1);
}

}  // namespace

StepWork step_work(const RunConfig& run, const DeviceInfo& on, int64_t devices_per_node, const MakeModel& make_model) {
  StepWork w;
  MetaTarget target(on);
  (run.mode == Mode::compiled ? take_compiled : take_eager)(w, run, make_model, devices_per_node);
  return w;
}

StepTime time_of(const StepWork& work, const Machine& machine, const Network& network, const Conditions& conditions) {
  StepTime t;
  double products = 0, outside = 0;
  for (size_t i = 0; i < work.parts.size(); ++i) {
    double times = double(work.times[i]);
    t.timeline = simulate(work.parts[i], machine, network, conditions);
    t.seconds += times * t.timeline.seconds;
    t.communication += times * t.timeline.communication, t.exposed += times * t.timeline.exposed;
    t.flops += times * work.parts[i].products();
    for (const Task& task : work.parts[i].tasks) {
      if (task.kind != Task::product) continue;
      products += times * task.flops;
      const auto& range = machine.product_flops;
      if (range && (task.flops < range->lowest || task.flops > range->highest)) outside += times * task.flops;
    }
  }
  t.outside = products > 0 ? outside / products : 0;
  return t;
}

}  // namespace sinter::plan
