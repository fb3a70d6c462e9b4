// sinter bench allreduce
#include "lab/command.h"

#include "lab/allreduce/bench_allreduce.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Every rank fills a buffer, all ranks add them up, and every sum is checked: one that is wrong makes
the exit code 4. The ranks are processes that this command starts; inside a job that something else
has launched they are the job's. Lists are allowed for --ranks, --mb, --backend and --dtype;
backends are measured in turns.

Examples:
  sinter bench allreduce                                       two ranks, every backend here
  sinter bench allreduce --ranks 2,4,6 --mb 1,10,100,1000 --backend shm,gloo
  sinter bench allreduce --ranks 4 --mb 0.001,0.01,0.1,1 --steps 100 --plot latency.svg
  sinter bench allreduce --mb 25 --dtype fp32,bf16 --backend gloo --deterministic
  sinter bench allreduce --ranks 2,4 --mb 10,100 --peer torch-gloo --turns 10
  sinter launch -n 4 -- bench allreduce --json curve.json      the ranks of a job
  sinter bench allreduce --device cuda --ranks 2,4 --mb 1,10,100   ranks on GPUs, which may share one
  mpirun -n 4 sinter bench allreduce
  sinter bench allreduce --rank 0 --world-size 2 --master-port 29500  and --rank 1 beside it)";

struct Given {
  std::string peer;
  AllReduceOptions bench;
  OutputOptions output;
};

int run(Given& g) {
  fill_in(g.bench.ranks);
  check(g.peer.empty() || g.peer == "torch-gloo", "--peer {}: unknown; choose torch-gloo", g.peer);
  g.bench.torch = !g.peer.empty();
  g.bench.device = chosen_device(g.bench.device);
  check_options(g.bench);
  if (is_first_rank(g.bench.ranks)) check_output(g.output);  // before anything is launched
  return on_ranks(g.bench.ranks, [&](dist::World& world) { return bench_allreduce(world, g.bench, g.output); });
}

Command::Run declare(Flags& flags, const Program&) {
  auto g = std::make_shared<Given>();
  AllReduceOptions& b = g->bench;
  const char *what = "Buffer", *group = "Run";
  flags.add("--mb", b.mb, "X,..", "size of the buffer, in 10⁶ bytes (default 1,10,100)", what);
  flags.add("--dtype", b.dtype, "NAME,..", "fp32, bf16, fp16: of its numbers (default fp32)", what);
  add_rank_flags(flags, b.ranks);
  add_device_flag(flags, b.device, "Ranks");
  flags.add("--backend", b.backend, "NAME,..",
            "shm (memory that ranks of a host share), gloo (TCP); for GPUs also ipc (their memory, mapped), nccl; shm "
            "and gloo then copy to the host and back (default: all that this build and these ranks have)",
            "Ranks");
  flags.add_switch("--deterministic", b.ranks.deterministic, "gloo adds in the order of ranks too, as shm does",
                   "Ranks");
  flags.add("--peer", g->peer, "NAME", "torch-gloo: PyTorch's Gloo, with ranks of its own, in turns with ours", group);
  flags.add("--python", b.python, "PROGRAM", python_help, group);
  flags.add("--turns", b.turns, "N", "backends are measured in so many turns (default 2)", group);
  flags.add("--warmup", b.warmup, "N", "runs before the timed ones, in every turn (default 2)", group);
  flags.add("--steps", b.steps, "N", "timed runs (default 20)", group);
  flags.add("--seconds", b.seconds, "X",
            "stop timing a case after so long, but not before the third run, or the tenth up to 100 MB (default 3)",
            group);
  add_output_flags(flags, g->output, Plot::yes);
  return [g] { return run(*g); };
}

}  // namespace

std::vector<Command> allreduce_commands() {
  return {{"bench allreduce", "time the sum of a buffer over ranks, through every backend there is", examples, declare,
           bench_allreduce_view}};
}

}  // namespace sinter::lab
