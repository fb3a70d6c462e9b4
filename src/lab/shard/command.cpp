// sinter bench shard
#include "lab/command.h"

#include "lab/shard/bench_shard.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Data parallelism keeps parameters, gradients and the optimizer's state on every rank. Sharding (ZeRO) divides
them, level by level: broadcast the optimizer's state, by whole layers; optimizer the same in equal shares; gradients
those too; parameters everything, gathered when it is read. none is data parallelism in buckets. --batch is per rank.

Examples:
  sinter bench shard                                            all levels, on two ranks that share this machine's cores
  sinter bench shard --mode eager,compiled --plot memory.svg    a picture of what a rank holds, and for what
  sinter bench shard --shard none,parameters --ranks 2,4        what more ranks save
  sinter bench shard --shard parameters --reshard-after-forward no
                                                                gathered once a step: fewer bytes moved, more held
  sinter bench shard --shard gradients --accumulate 4 --accumulate-unsharded
                                                                gradients reduced once a step, not once a micro-batch
  sinter bench shard --trace traces                             a trace for each level and rank, for Perfetto and HTA
  sinter launch -n 4 --threads 2 -- bench shard                 or torchrun, mpirun, srun: their ranks are used)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    ShardBenchOptions shard;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  add_ranked_flags(flags, g->model, g->shard, g->output);
  g->shard.shard.declare(flags, "all of them");
  return [g, program] {
    take_ranked_flags(g->model, g->shard, g->output);
    return bench_shard(g->shard, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> shard_commands() {
  return {{"bench shard", "time a step and measure its memory, by what ranks divide among them", examples, declare,
           bench_shard_view}};
}

}  // namespace sinter::lab
