#include "train/run_config.h"

#include "core/check.h"

namespace sinter {

const char* name_of(Mode m) { return m == Mode::eager ? "eager" : "compiled"; }
Mode mode_named(const std::string& name) {
  for (Mode m : {Mode::eager, Mode::compiled})
    if (name == name_of(m)) return m;
  fail_with(ErrorKind::usage, "--mode {}: unknown; choose eager or compiled", name);
}

const char* name_of(Pass p) {
  static const char* const names[pass_count] = {"forward", "evaluate", "forward-backward", "step"};
  return names[int(p)];
}
const char* name_of(Phase p) {
  static const char* const names[phase_count] = {"forward", "backward", "optimizer", "pass"};
  return names[int(p)];
}

Pass pass_named(const std::string& name) {
  for (Pass p : {Pass::forward, Pass::forward_backward, Pass::step})
    if (name == name_of(p)) return p;
  fail_with(ErrorKind::usage, "--pass {}: unknown; choose forward, forward-backward or step", name);
}

DeviceType device_named(const std::string& name) {
  if (name == "cpu") return DeviceType::cpu;
  check(name == "cuda", "--device {}: unknown; choose cpu or cuda", name);
  backend_of(DeviceType::cuda);
  return DeviceType::cuda;
}
std::string default_device() { return cuda_backend() ? "cuda" : "cpu"; }

TrainerOptions RunConfig::trainer_options(DeviceType where) const {
  TrainerOptions o;
  o.precision = precision;
  o.device = where;
  o.seed = seed;
  o.optimizer = make_adamw(adamw);
  o.group = group;
  o.data_parallel = data_parallel;
  o.shard = shard;
  if (mode == Mode::compiled) {
    o.compiled = compile::passes_named(passes);
    o.compiled->memory_budget = int64_t(memory_budget * 1024 * 1024 * 1024);
  }
  return o;
}

std::string RunConfig::text() const {
  std::string times = accumulate > 1 ? fmt::format("{} × ", accumulate) : "";
  return fmt::format("{}, batch {}{}, ctx {}, {}, {} attention, {}{}", model.name, times, batch, model.ctx,
                     precision.name, name_of(model.attention.kind),
                     mode == Mode::eager ? ""
                     : passes == "all"   ? "compiled "
                                         : "compiled (" + passes + ") ",
                     name_of(pass));
}

}  // namespace sinter
