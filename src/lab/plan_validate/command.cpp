// sinter plan validate
#include "lab/command.h"

#include "lab/plan_validate/plan_validate.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Every row is printed, with its error, and with what a predictor says that takes every step to run at
a constant part of the peak.

Examples:
  sinter plan validate --published bench/published_runs.json     runs that others have published
  sinter plan validate --record steps.json --machine mine.json       steps that were measured before
  sinter plan validate --record ddp.json,shard.json --machine mine.json --network allreduce.json
  sinter plan validate --random 20 --seed 1 --machine mine.json      shapes nobody chose, measured now)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    PlanValidateOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  flags.add("--published", g->plan.published, "FILE", "published runs, as bench/published_runs.json holds them",
            "Runs");
  flags.add("--record", g->plan.records, "FILE,..", "records of bench model, bench ddp or bench shard", "Runs");
  flags.add("--random", g->plan.random, "N", "so many shapes that nobody chose, measured on this machine now", "Runs");
  flags.add("--seed", g->plan.seed, "N", "that they are drawn with (default 0)", "Runs");
  flags.add("--machine", g->plan.machine, "NAME|FILE", "what predicts --record and --random", "Machine");
  flags.add("--network", g->plan.network, "NAME|FILE",
            "of steps of several ranks: a record of bench allreduce, or as of plan simulate", "Machine");
  add_output_flags(flags, g->output, Plot::no);
  return [g, program] {
    g->output.reads = {{"--published", g->plan.published}, {"--machine", g->plan.machine}};
    for (const std::string& file : g->plan.records) g->output.reads.emplace_back("--record", file);
    return plan_validate(g->plan, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> plan_validate_commands() {
  return {{"plan validate", "predictions beside measurements: how far they are to be trusted", examples, declare,
           plan_validate_view}};
}

}  // namespace sinter::lab
