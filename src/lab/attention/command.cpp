// sinter bench attention
#include "lab/command.h"

#include "lab/attention/bench_attention.h"
#include "lab/attention/sweep.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Without --sweep or --leaderboard: batch 8, one head, d 16 to 128, ctx 256 to 16384, naive, fp32. Every flag
overrides the table's value; lists are allowed for shapes, --dtype, --attention, --mode, --passes, --tile and --pass.
Variants of one shape are timed in turns.

Examples:
  sinter bench attention                                    the table of batch 8, with what each row holds
  sinter bench attention --sweep                            naive against flash, ctx 128 to 65536, bf16 and fp32
  sinter bench attention --leaderboard --peer cudnn,flash   16 heads of 64, ctx 16384, beside PyTorch's kernels
  sinter bench attention --device cpu --ctx 512,1024,2048 --attention naive,tiled,flash
  sinter bench attention --heads 32 --kv-heads 8 --ctx 8192 --head-dim 128 --dtype bf16 --attention flash
  sinter bench attention --attention naive,flash --mode eager,compiled --ctx 1024,4096     what compiling buys either
  sinter bench attention --attention tiled --tile 32,64,128 --ctx 2048 --plot tiles.svg)";

// What a table says where no flag does.
AttentionSweep table_named(const std::string& name) {
  AttentionSweep s;
  s.mode = {"eager"}, s.pass = {"forward-backward"};
  if (name == "leaderboard") {
    s.batch = {1}, s.heads = {16}, s.ctx = {16384}, s.head_dim = {64}, s.dtype = {"bf16"}, s.attention = {"auto"};
    return s;
  }
  s.heads = {1}, s.head_dim = {16, 32, 64, 128};
  if (name == "sweep") {
    s.batch = {1}, s.ctx = {128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
    s.dtype = {"bf16", "fp32"}, s.attention = {"naive", "flash"};
  } else {
    s.batch = {8}, s.ctx = {256, 1024, 4096, 8192, 16384};
    s.dtype = {"fp32"}, s.attention = {"naive"};
  }
  return s;
}

struct Given {
  AttentionSweep attention;
  bool sweep = false, leaderboard = false;
  AttentionBenchOptions bench;
  OutputOptions output;
};

int run(Given& g) {
  check(!g.sweep || !g.leaderboard, "--sweep and --leaderboard are two tables; choose one");
  for (const std::string& p : g.bench.peers)
    check(p == "cudnn" || p == "flash" || p == "mem_eff" || p == "math",
          "--peer {}: unknown; choose cudnn, flash, mem_eff or math (PyTorch's backends)", p);
  g.bench.table = g.sweep ? "sweep" : g.leaderboard ? "leaderboard" : "batch 8";
  g.attention.fill_in(table_named(g.bench.table));
  g.bench.configs = g.attention.configs(AttentionSweep::Determinism::compared);
  bool cpu = g.bench.configs[0].device == DeviceType::cpu;
  g.bench.warmup = g.attention.warmup.value_or(cpu ? 1 : 10);
  g.bench.steps = g.attention.steps.value_or(cpu ? 5 : 100);
  return bench_attention(g.bench, g.output);
}

Command::Run declare(Flags& flags, const Program&) {
  auto g = std::make_shared<Given>();
  const char* group = "Run";
  flags.add_switch("--sweep", g->sweep, "naive against flash, ctx 128 to 65536", "Attention");
  flags.add_switch("--leaderboard", g->leaderboard, "16 heads of 64, ctx 16384, bf16", "Attention");
  AttentionSweep defaults;  // the same in every table
  defaults.pass = {"forward-backward"}, defaults.mode = {"eager"};
  g->attention.declare(flags, defaults);
  flags.add("--seconds", g->bench.seconds, "X",
            "stop timing a configuration after so long, but not before the third pass (default: all --steps)", group);
  flags.add("--peer", g->bench.peers, "NAME,..",
            "cudnn, flash, mem_eff, math: PyTorch's attention with that backend, between two turns of ours", group);
  flags.add("--python", g->bench.python, "PROGRAM", python_help, group);
  add_output_flags(flags, g->output, Plot::yes);
  return [g] { return run(*g); };
}

}  // namespace

std::vector<Command> attention_commands() {
  return {{"bench attention",
           "time attention alone, forward and backward, against the speed of light; memory held in between", examples,
           declare, bench_attention_view}};
}

}  // namespace sinter::lab
