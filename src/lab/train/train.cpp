#include "lab/train/train.h"

#include <algorithm>

#include "core/check.h"
#include "lab/imagined_ranks.h"
#include "lab/record.h"
#include "lab/train/resume.h"
#include "lab/train/train_case.h"
#include "system/signals.h"
#include "system/streams.h"

namespace sinter::lab {
namespace {

int64_t largest_divisor(int64_t n, int64_t most) {
  for (int64_t d = std::min(n, most); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

// Micro-batches, where the global batch is given; `sweep.batch` or `sweep.accumulate` may be left open.
void divide_global_batch(SweepOptions& sweep, int64_t global, int64_t ranks) {
  check(global >= 1, "--global-batch must be at least 1, not {}", global);
  check(global % ranks == 0, "--global-batch {} cannot be divided among {} ranks; use {}", global, ranks,
        global < ranks ? fmt::format("{}", ranks)
                       : fmt::format("{} or {}", global / ranks * ranks, (global / ranks + 1) * ranks));
  int64_t mine = global / ranks;
  std::string each = ranks == 1 ? "" : fmt::format(", {} for each of {} ranks,", mine, ranks);
  if (sweep.batch.empty()) {
    int64_t parts = sweep.accumulate.value_or(0);
    check(parts >= 0 && (parts == 0 || mine % parts == 0),
          "--global-batch {}{} cannot be divided into --accumulate {} micro-batches; use {} of them", global, each,
          parts, largest_divisor(mine, std::max<int64_t>(1, parts)));
    constexpr int64_t usual = 4;
    sweep.batch = {parts > 0 ? mine / parts : largest_divisor(mine, usual)};
  }
  int64_t batch = sweep.batch[0];
  check(batch >= 1 && mine % batch == 0,
        "--global-batch {}{} cannot be divided into micro-batches of --batch {}; use --batch {}", global, each, batch,
        largest_divisor(mine, std::max<int64_t>(1, batch)));
  check(!sweep.accumulate || *sweep.accumulate == mine / batch,
        "--global-batch {}{} makes {} micro-batches of --batch {}, not the {} of --accumulate; leave one of the flags "
        "out",
        global, each, mine / batch, batch, sweep.accumulate.value_or(0));
  sweep.accumulate = mine / batch;
}

// The one run that the flags describe.
MeasuredRun run_of(SweepOptions sweep) {
  std::vector<MeasuredRun> runs = expand(with_defaults(std::move(sweep)));
  check(runs.size() == 1, "a list of values makes {} runs, and one is trained at a time; give each flag one value",
        runs.size());
  return runs[0];
}

void take_schedule(const TrainFields& f, TrainPlan& plan) {
  double lr = plan.run.adamw.learning_rate;
  plan.schedule = f.schedule.value_or("cosine");
  check(plan.schedule == "cosine" || plan.schedule == "constant", "--schedule {}: unknown; choose cosine or constant",
        plan.schedule);
  plan.schedule_steps = f.schedule_steps.value_or(plan.run.steps);
  check(plan.schedule_steps >= 1, "--schedule-steps must be at least 1, not {}", plan.schedule_steps);
  plan.warmup_steps = f.warmup_steps.value_or(std::min<int64_t>(100, plan.schedule_steps / 10));
  check(plan.warmup_steps >= 0 && plan.warmup_steps <= plan.schedule_steps,
        "--warmup-steps must be between 0 and the {} steps of the schedule, not {}", plan.schedule_steps,
        plan.warmup_steps);
  plan.min_lr = f.min_lr.value_or(lr / 10);
  check(plan.min_lr >= 0 && plan.min_lr <= lr, "--min-lr must be between 0 and --lr {}, not {}", lr, plan.min_lr);
}

void take_optimizer(const TrainFields& f, AdamWOptions& adamw) {
  adamw.weight_decay = f.weight_decay.value_or(adamw.weight_decay);
  adamw.beta1 = f.beta1.value_or(adamw.beta1), adamw.beta2 = f.beta2.value_or(adamw.beta2);
  check(adamw.weight_decay >= 0, "--weight-decay must not be negative, and is {}", adamw.weight_decay);
  for (auto [flag, beta] : {std::pair("beta1", adamw.beta1), std::pair("beta2", adamw.beta2)})
    check(beta >= 0 && beta < 1, "--{} must be at least 0 and less than 1, not {}", flag, beta);
}

void take_evaluation(const TrainFields& f, const Windows& validation, TrainPlan& plan) {
  plan.evaluate_every = f.evaluate_every.value_or(0);
  plan.evaluate_batches = f.evaluate_batches.value_or(20);
  check(plan.evaluate_every >= 0, "--evaluate-every must not be negative, and is {}; 0 means only at the end",
        plan.evaluate_every);
  check(plan.evaluate_batches >= 1, "--evaluate-batches must be at least 1, not {}", plan.evaluate_batches);
  if (validation.count() == 0) {
    check(plan.evaluate_every == 0, "--evaluate-every {}: there is nothing to evaluate on; leave out --validation 0",
          plan.evaluate_every);
    return;
  }
  check(plan.evaluated(validation.count()) > 0,
        "there are {} sequences of --ctx {} to evaluate on, fewer than the {} of a global batch; give a larger "
        "--validation or other files for it, a smaller --global-batch or --ctx, or --validation 0 for none",
        validation.count(), plan.run.model.ctx, plan.shape.global());
}

void take_on_nan(const TrainFields& f, TrainPlan& plan) {
  std::string what = f.on_nan.value_or("stop");
  check(what == "stop" || what == "skip", "--on-nan {}: unknown; choose stop or skip", what);
  plan.skip_not_finite = what == "skip";
  const AdamWOptions& adamw = plan.run.adamw;
  check(!plan.skip_not_finite || adamw.max_norm > 0 || plan.run.precision.loss_scaling,
        "--on-nan skip: whether an update is skipped follows from the gradient's norm, which only --clip computes; add "
        "--clip 1, or --clip 1e9, which clips nothing");
}

// What ranks divide.
void take_ranks(const TrainOptions& o, MeasuredRun& run) {
  std::vector<ShardLevel> levels = o.shard.all_levels();
  check(levels.size() <= 1, "--shard: give one level");
  check(levels.empty() || levels[0] == ShardLevel::none || o.strategy.empty(),
        "--strategy {}: with --shard {} there is nothing to choose; leave one of them out", o.strategy,
        o.shard.levels.empty() ? "" : o.shard.levels[0]);
  run.shard = o.shard.options(levels.empty() ? ShardLevel::none : levels[0]);
  run.data_parallel = {dist::strategy_named(o.strategy.empty() ? "bucketed" : o.strategy), o.shard.bucket_mb};
}

void take_checkpoints(const TrainOptions& o, TrainPlan& plan) {
  const TrainFields& f = o.fields;
  plan.out = o.out;
  plan.log = o.log.empty() && !o.out.empty() ? o.out + "/log.jsonl" : o.log;
  plan.keep = f.keep.value_or(0), plan.checkpoint_every = f.checkpoint_every.value_or(0);
  check(plan.keep >= 0 && plan.keep <= 1000000, "--keep must be between 0 and a million, not {}; 0 keeps all",
        plan.keep);
  check(plan.checkpoint_every >= 0, "--checkpoint-every must not be negative, and is {}; 0 means only at the end",
        plan.checkpoint_every);
  check(plan.checkpoint_every == 0 || !o.out.empty(), "--checkpoint-every {}: say where checkpoints go, with --out DIR",
        plan.checkpoint_every);
}

// All that a run needs to be run again, or gone on with.
Json saved_config(const TrainOptions& o, const TrainPlan& plan, const TrainData& data) {
  Json config = config_of(plan.run);
  if (o.sweep.threads) config["threads"] = *o.sweep.threads;
  config.update(to_json(o.fields));
  config["steps"] = plan.run.steps;
  config["global_batch"] = plan.shape.global();
  config["ranks"] = plan.shape.ranks;
  if (plan.shape.ranks > 1) {
    config["shard"] = name_of(plan.run.shard.level);
    if (!o.strategy.empty()) config["strategy"] = o.strategy;
    config["bucket_mb"] = o.shard.bucket_mb;
    config["reshard_after_forward"] = plan.run.shard.reshard_after_forward;
    config["accumulate_unsharded"] = plan.run.shard.accumulate_unsharded;
  }
  config["data"] = data.json();
  return config;
}

}  // namespace

int train(TrainOptions o, const OutputOptions& output, const MakeModel& make_model) {
  const TrainFields& f = o.fields;
  dist::check_backend(o.backend);
  fill_in(o.ranks, 1);
  check(o.ranks.ranks.size() == 1, "--ranks: give one number");
  int64_t ranks = o.ranks.ranks[0];
  std::optional<dist::RankInfo> me = this_rank(o.ranks);
  check(!o.fit || (o.sweep.batch.empty() && !o.sweep.accumulate),
        "--fit chooses --batch, and with it --accumulate; leave them out");
  std::optional<CheckpointInfo> from = checkpoint_to_resume(o);
  if (from) lay_under(*from, ranks, o);
  check(!me || me->size == ranks, "--ranks {}: this job has {} ({}), and all of them train; leave the flag out", ranks,
        me ? me->size : 0, me ? me->launcher : "");
  if (ranks > 1) {
    if (!o.sweep.threads) divide_threads(o.ranks);
  }
  set_up_process(o.sweep);
  TrainData data(f);
  if (o.sweep.vocab.empty()) o.sweep.vocab = {data.vocabulary()};
  o.sweep.steps = f.steps.value_or(1000);
  check(!o.fit || f.global_batch, "--fit: say with --global-batch how many sequences a step takes");
  if (o.fit) o.sweep.batch = {}, o.sweep.accumulate = {};  // those of a checkpoint
  if (f.global_batch) divide_global_batch(o.sweep, *f.global_batch, ranks);
  TrainPlan plan;
  plan.run = run_of(o.sweep);
  plan.run.warmup = 0;
  plan.shape = {plan.run.batch, plan.run.accumulate, ranks, me ? me->rank : 0};
  take_schedule(f, plan);
  take_optimizer(f, plan.run.adamw);
  take_on_nan(f, plan);
  take_ranks(o, plan.run);
  take_checkpoints(o, plan);
  // A run that was killed before its first checkpoint begins again, and so does its log.
  if (from || o.resume_if_possible) plan.log_after = from ? from->step : 0;
  bool first = is_first_rank(o.ranks);
  data.cut(plan.run.model, first);
  take_evaluation(f, data.windows.validation, plan);
  if (first) {
    check_output(output, {{"--log", o.log}});
    if (!plan.log_after) refuse_existing_log(plan.log);
  }
  plan.config = saved_config(o, plan, data);
  if (from) refuse_other_run(*from, plan.config);
  plan.from = from;
  if (from && from->step >= plan.run.steps) {
    check(o.resume.empty(), "--resume {}: step {} of {} is there already; give a larger --steps", o.resume, from->step,
          plan.run.steps);
    if (first) say(fmt::format("{}: all {} steps are there already\n", o.out, plan.run.steps));
    return 0;
  }

  Experiment e{"train", plan.config, plan.run.device};
  // The case ends by itself, after a step that all ranks know of.
  e.stopped = [] { return false; };
  e.exit_code = [saves = !plan.out.empty()](const Json& results) {
    bool stopped =
        std::any_of(results.begin(), results.end(), [](const Json& r) { return r["status"] == "interrupted"; });
    if (stopped) return saves ? 0 : interrupted_exit_code;
    return exit_code_of(results);
  };
  auto settle = [&](dist::World* world) {
    if (!o.fit) return;
    choose_micro_batch(plan, world, make_model);
    e.config = plan.config = saved_config(o, plan, data);
  };
  if (!me && ranks == 1) {
    settle(nullptr);
    e.groups.emplace_back().cases.push_back(std::make_unique<TrainCase>(plan, data, nullptr, make_model));
    return run(e, output);
  }
  return on_ranks(o.ranks, [&](dist::World& world) {
    std::unique_ptr<ProcessGroup> group = world.make_group(o.backend, {}, false, plan.run.device);
    plan.run.group = group.get();
    settle(&world);
    e.groups.emplace_back().cases.push_back(std::make_unique<TrainCase>(plan, data, &world, make_model));
    e.writes = world.rank() == 0;
    return run(e, output);
  });
}

}  // namespace sinter::lab
