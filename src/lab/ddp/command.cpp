// sinter bench ddp
#include "lab/command.h"

#include "lab/ddp/bench_ddp.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Every rank has the whole model and a batch of its own (--batch is per rank); gradients are averaged before the
update: naive one all-reduce for each parameter, after the backward pass; flat one for all; overlap one for each
parameter, during the backward pass; bucketed one for each bucket, during it. none is the step without communication.

Examples:
  sinter bench ddp                                              two ranks that share this machine's cores
  sinter bench ddp --mode compiled --bucket-mb 1,10,25,100      which bucket size pays
  sinter bench ddp --strategy naive,bucketed --plot ddp.svg     a picture of what overlaps
  sinter bench ddp --trace traces                               a trace for each rank, for Perfetto and HTA
  sinter bench ddp --mode compiled --peer torch-ddp --turns 10  beside PyTorch's DistributedDataParallel over Gloo
  sinter bench ddp --ranks 2,4 --backend gloo --size mini       over TCP
  sinter launch -n 4 --threads 2 -- bench ddp --check-replicas 5
  mpirun -n 2 sinter bench ddp                                  or torchrun, srun: their ranks are used
  sinter bench ddp --rank 0 --world-size 2 --master-port 29500  and --rank 1 in another terminal)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    DdpOptions ddp;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  const char* group = "Ranks";
  add_ranked_flags(flags, g->model, g->ddp, g->output);
  flags.add("--strategy", g->ddp.strategies, "NAME,..", "none, naive, flat, overlap, bucketed (default: all of them)",
            group);
  flags.add("--bucket-mb", g->ddp.bucket_mb, "MIB,..", "size of a bucket (default 25)", group);
  flags.add("--check-replicas", g->ddp.check_replicas, "K",
            "compare the ranks' parameters every K steps (default: never)", group);
  flags.add(
      "--peer", g->ddp.peers, "NAME,..",
      "torch-ddp, torch-none (without communication), either with -compiled, or torch-fsdp: PyTorch's ranks in turns "
      "with ours",
      "Run");
  flags.add("--python", g->ddp.python, "PROGRAM", python_help, "Run");
  return [g, program] {
    take_ranked_flags(g->model, g->ddp, g->output);
    return bench_ddp(g->ddp, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> ddp_commands() {
  return {{"bench ddp", "time a step that several ranks take together, by how they communicate", examples, declare,
           bench_ddp_view}};
}

}  // namespace sinter::lab
