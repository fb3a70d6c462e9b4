// sinter bench attention
#include "lab/attention/bench_attention.h"

#include "cli/app.h"
#include "cli/attention_flags.h"
#include "cli/list.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(Without --sweep or --leaderboard: batch 8, one head, d 16 to 128, ctx 256 to 16384, naive, fp32. Every flag overrides the
table's value; lists are allowed for shapes, --dtype, --attention, --mode, --passes, --tile and --pass. Variants of one shape are timed in turns.

Examples:
  sinter bench attention                                             the table of batch 8, with what each row holds
  sinter bench attention --sweep                                     naive against flash, ctx 128 to 65536, bf16 and fp32
  sinter bench attention --leaderboard --peer cudnn,flash            16 heads of 64, ctx 16384, beside PyTorch's kernels
  sinter bench attention --device cpu --ctx 512,1024,2048 --attention naive,tiled,flash
  sinter bench attention --heads 32 --kv-heads 8 --ctx 8192 --head-dim 128 --dtype bf16 --attention flash --deterministic
  sinter bench attention --attention naive,flash --mode eager,compiled --ctx 1024,4096     what compiling buys either
  sinter bench attention --attention tiled --tile 32,64,128 --ctx 2048 --plot tiles.svg)";

// What a table says where no flag does.
struct Preset {
  const char *name, *batch, *heads, *ctx, *head_dim, *dtype, *attention;
};
constexpr Preset batch8{"batch 8", "8", "1", "256,1024,4096,8192,16384", "16,32,64,128", "fp32", "naive"};
constexpr Preset sweep{"sweep",        "1",         "1",          "128,256,512,1024,2048,4096,8192,16384,32768,65536",
                       "16,32,64,128", "bf16,fp32", "naive,flash"};
constexpr Preset leaderboard{"leaderboard", "1", "16", "16384", "64", "bf16", "auto"};

struct Flags {
  AttentionFlags attention;
  std::string peers, seconds = "0";
  bool sweep = false, leaderboard = false;
  lab::AttentionBenchOptions bench;
  lab::OutputOptions output;

  Flags() {  // empty: not given
    for (std::string* s : {&attention.batch, &attention.heads, &attention.ctx, &attention.head_dim, &attention.dtype,
                           &attention.attention, &attention.warmup, &attention.steps})
      s->clear();
  }
};

void fill_in(AttentionFlags& f, const Preset& p) {
  auto otherwise = [](std::string& value, const char* preset) {
    if (value.empty()) value = preset;
  };
  otherwise(f.batch, p.batch);
  otherwise(f.heads, p.heads);
  otherwise(f.ctx, p.ctx);
  otherwise(f.head_dim, p.head_dim);
  otherwise(f.dtype, p.dtype);
  otherwise(f.attention, p.attention);
  bool cpu = f.where() == DeviceType::cpu;
  otherwise(f.warmup, cpu ? "1" : "10");
  otherwise(f.steps, cpu ? "5" : "100");
}

int run(Flags& f) {
  check(!f.sweep || !f.leaderboard, "--sweep and --leaderboard are two tables; choose one");
  const Preset& preset = f.sweep ? sweep : f.leaderboard ? leaderboard : batch8;
  if (!f.peers.empty()) f.bench.peers = split("--peer", f.peers);
  for (const std::string& p : f.bench.peers)
    check(p == "cudnn" || p == "flash" || p == "mem_eff" || p == "math",
          "--peer {}: unknown; choose cudnn, flash, mem_eff or math (PyTorch's backends)", p);
  fill_in(f.attention, preset);
  f.bench.table = preset.name;
  f.bench.configs = f.attention.configs(AttentionFlags::Determinism::compared);
  f.bench.warmup = number<int64_t>("--warmup", f.attention.warmup);
  f.bench.steps = number<int64_t>("--steps", f.attention.steps);
  f.bench.seconds = number<double>("--seconds", f.seconds);
  return lab::bench_attention(f.bench, f.output);
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action) {
  CLI::App* attention = bench.add_subcommand(
      "attention", "time attention alone, forward and backward, against the speed of light; memory held in between");
  attention->footer(examples);
  auto flags = std::make_shared<Flags>();
  const char* run_group = "Run";
  attention->add_flag("--sweep", flags->sweep, "naive against flash, ctx 128 to 65536")->group("Attention");
  attention->add_flag("--leaderboard", flags->leaderboard, "16 heads of 64, ctx 16384, bf16")->group("Attention");
  add_attention_flags(*attention, flags->attention);
  add_mode_flags(*attention, flags->attention);
  add_text(*attention, "--seconds", flags->seconds,
           "stop timing a configuration after so long, but not before the third pass (default: all --steps)", "X",
           run_group);
  add_text(*attention, "--peer", flags->peers,
           "cudnn, flash, mem_eff, math: PyTorch's attention with that backend, between two turns of ours", "NAME,..",
           run_group);
  add_text(*attention, "--python", flags->bench.python, "the python that has PyTorch (default python3)", "PROGRAM",
           run_group);
  add_output_flags(*attention, flags->output, Plot::yes);
  attention->callback([&action, flags] { action = [flags] { return run(*flags); }; });
}

}  // namespace sinter::cli
