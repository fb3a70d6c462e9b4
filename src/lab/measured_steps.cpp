#include "lab/measured_steps.h"

#include "core/check.h"
#include "lab/imagined_ranks.h"
#include "lab/record.h"

namespace sinter::lab {
namespace {

// What a row of bench ddp or bench shard says of its ranks.
void take_ranks(MeasuredStepOf& step, const Json& row, const std::string& file) {
  step.ranks = row.at("ranks");
  check(step.ranks >= 1 && step.ranks <= most_imagined_ranks, "{}: \"ranks\" is {}, not between 1 and {}", file,
        step.ranks, most_imagined_ranks);
  if (row.value("share_a_gpu", Json()) == true) step.share_device = double(step.ranks);
  std::string strategy = row.value("strategy", "bucketed");
  if (strategy == "none" || step.ranks == 1) return;
  step.backend = row.at("backend");
  ShardFlags shard;
  shard.reshard_after_forward = row.value("reshard_after_forward", true) ? "yes" : "no";
  shard.accumulate_unsharded = row.value("accumulate_unsharded", false);
  const Json bucket = row.value("bucket_mb", Json());
  step.run.group = imagined_group(step.ranks);
  step.run.data_parallel = {dist::strategy_named(strategy), bucket.is_number() ? bucket.get<double>() : 25};
  step.run.shard = shard.options(shard_level_named(row.value("level", "none")));
}

}  // namespace

std::string MeasuredStepOf::text() const {
  const ModelConfig& m = run.model;
  std::string text = m.name == "custom"
                         ? fmt::format("d {} ff {} L {} h {}, {}", m.d_model, m.d_ff, m.layers, m.heads, run.text())
                         : run.text();
  if (ranks == 1) return text;
  std::string how = "none";
  if (run.group && run.shard.level != ShardLevel::none) how = fmt::format("shard {}", name_of(run.shard.level));
  else if (run.group) how = dist::name_of(run.data_parallel.strategy);
  if (how == "bucketed") how += fmt::format(" {} MiB", run.data_parallel.bucket_mb);
  return fmt::format("{} × {}: {}", ranks, how, text);
}

namespace {

std::vector<MeasuredStepOf> steps_of(const Json& record, const std::string& file, const DeviceInfo& on) {
  const std::string command = record.value("command", "?");
  const bool ranked = command == "bench ddp" || command == "bench shard";
  check(ranked || command == "bench model", "{}: a record of {}; give one of bench model, bench ddp or bench shard",
        file, command);
  std::vector<MeasuredStepOf> steps;
  for (const Json& r : record.at("results")) {
    if (r.value("engine", "sinter") != "sinter" || r.value("status", "") != "ok") continue;
    if (!ranked && !r.contains("config")) continue;
    check(r.value("device", "") == name_of(on.type), "{}: measured on {}, and the machine is a {}", file,
          r.value("device", "?"), name_of(on.type));
    SweepOptions sweep = sweep_from_json(ranked ? r : r["config"], file);
    sweep.threads = {}, sweep.no_tune = {};
    if (sweep.size == std::vector<std::string>{"custom"}) sweep.size = {};
    if (r.contains("attention")) sweep.attention = {r["attention"].get<std::string>()};  // what ran
    double median = r.at("median_ms");
    steps.push_back({expand(with_defaults(sweep), on).at(0), median, r.value("std_ms", 0.0) / median});
    if (ranked) take_ranks(steps.back(), r, file);
  }
  check(!steps.empty(), "{}: holds no step that sinter measured", file);
  return steps;
}

}  // namespace

std::vector<MeasuredStepOf> measured_steps(const std::string& file, const DeviceInfo& on) {
  const Json record = read_record(file);
  try {
    return steps_of(record, file, on);
  } catch (const Json::exception& e) {
    fail_with(ErrorKind::usage, "{}: lacks something that a measured step has: {}", file, message_of(e));
  }
}

}  // namespace sinter::lab
