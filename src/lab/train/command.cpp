// sinter train
#include "lab/command.h"

#include "lab/train/train.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Text is cut into sequences of --ctx tokens. A step takes --global-batch of them, in an order that follows from
--seed and the step alone: the same on any number of ranks, and another one in each epoch. --batch is a micro-batch of
one rank, which --fit chooses.

Examples:
  sinter train --text story.txt --steps 500                      a tiny model of bytes, on this machine
  sinter train --text a.txt,b.txt --mode compiled --log run.jsonl --evaluate-every 100
  sinter train --tokens fineweb.bin --size small --dtype bf16 --mode compiled --global-batch 64 --lr 6e-4 --clip 1
  sinter train --text story.txt --out run --checkpoint-every 200 --keep 3
  sinter train --resume run --steps 2000                         go on; or --out run --resume-if-possible in a script
  sinter train --text story.txt --ranks 2 --shard optimizer      two ranks that share this machine's cores
  sinter launch -n 4 --threads 2 -- train --text story.txt       or torchrun, mpirun, srun: their ranks are used
  sinter show run.jsonl other.jsonl --plot losses.html           the curves of several runs over each other)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    TrainOptions train;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->train.fields.for_each_field(
      [&](const std::string& name, auto& field, const std::string& type, const std::string& help,
          const std::string& group) { flags.add(flag_named(name), field, type, help, group); });
  g->model.declare(flags, {"pass", "warmup", "steps"});
  flags.add_switch("--fit", g->train.fit,
                   "with --global-batch: --batch is the largest that is predicted to fit; a compiled step recomputes "
                   "where not even 1 would",
                   "Run");
  add_rank_flags(flags, g->train.ranks, 1);
  flags.add("--backend", g->train.backend, "NAME",
            "shm, gloo; on GPUs ipc, nccl too; hosts (one of them inside, one between); or auto: what suits where the "
            "ranks are",
            "Ranks");
  flags.add("--strategy", g->train.strategy, "NAME",
            "without sharding, how ranks reduce gradients: naive, flat, overlap, bucketed (default bucketed)", "Ranks");
  g->train.shard.declare(flags, "none");
  const char* saved = "Checkpoints";
  flags.add("--out", g->train.out, "DIR", "the folder that checkpoints and the log are written to", saved);
  flags.add("--resume", g->train.resume, "DIR",
            "go on from the newest checkpoint there, with all that the run was begun with; flags override it", saved);
  flags.add_switch("--resume-if-possible", g->train.resume_if_possible,
                   "with --out: go on if there is a checkpoint, and begin otherwise", saved);
  flags.add("--log", g->train.log, "FILE.jsonl",
            "a line for each step: loss, learning rate, tokens/s, … (default log.jsonl in --out)", "Output");
  add_output_flags(flags, g->output, Plot::yes);
  return [g, program] {
    TrainOptions& o = g->train;
    o.sweep = g->model.sweep();
    o.ranks.deterministic = o.sweep.deterministic.value_or(false);
    const std::string& config = g->model.config_file();
    if (!config.empty()) o.fields = overlaid(train_fields_from_file(config), o.fields);
    g->output.reads = {{"--config", config}};
    for (const auto* files : {&o.fields.text, &o.fields.validation_text})
      for (const std::string& file : *files) g->output.reads.emplace_back("--text", file);
    for (const auto* files : {&o.fields.tokens, &o.fields.validation_tokens})
      for (const std::string& file : *files) g->output.reads.emplace_back("--tokens", file);
    return train(o, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> train_commands() {
  return {{"train", "train a Transformer on text or token files", examples, declare, train_view}};
}

}  // namespace sinter::lab
