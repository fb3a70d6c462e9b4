// What sinter train takes besides the model's flags.
#pragma once
#include "lab/model_flags.h"
#include "lab/option_fields.h"
#include "lab/ranks.h"
#include "lab/shard_flags.h"

namespace sinter::lab {

// What a run consists of, with its model's flags: what a checkpoint and a record hold of it.
struct TrainFields {
  std::vector<std::string> text, tokens, validation_text, validation_tokens;
  std::optional<double> validation, min_lr, weight_decay, beta1, beta2;
  std::optional<int64_t> steps, global_batch, warmup_steps, schedule_steps, evaluate_every, evaluate_batches,
      checkpoint_every, keep;
  std::optional<std::string> schedule, on_nan;

  template <class F> void for_each_field(F&& f) {
    const char *data = "Data", *run = "Run";
    f("text", text, "FILE,..", "text to train on: its bytes are the tokens, of a vocabulary of 256", data);
    f("tokens", tokens, "FILE,..",
      "token ids to train on, instead: bare 16-bit ones as nanoGPT writes them, or llm.c's files with a header", data);
    f("validation", validation, "X",
      "this fraction of the sequences, the last ones, is evaluated on and not trained on (default 0.05; 0: none)",
      data);
    f("validation_text", validation_text, "FILE,..", "text to evaluate on, instead of a fraction", data);
    f("validation_tokens", validation_tokens, "FILE,..", "the same as token ids", data);
    f("steps", steps, "N", "how long to train (default 1000)", run);
    f("global_batch", global_batch, "N",
      "sequences a step takes on all ranks; --accumulate follows from it (default: ranks × accumulate × batch)", run);
    f("min_lr", min_lr, "X", "what the learning rate falls to (default a tenth of --lr)", run);
    f("warmup_steps", warmup_steps, "N",
      "steps in which the learning rate rises from nothing (default a tenth of --schedule-steps, at most 100)", run);
    f("schedule", schedule, "NAME", "cosine, down to --min-lr at the end, or constant after the rise (default cosine)",
      run);
    f("schedule_steps", schedule_steps, "N", "steps that the schedule is laid out for (default --steps)", run);
    f("weight_decay", weight_decay, "X", "AdamW's (default 0.01)", run);
    f("beta1", beta1, "X", "AdamW's (default 0.9)", run);
    f("beta2", beta2, "X", "AdamW's (default 0.999)", run);
    f("evaluate_every", evaluate_every, "N", "steps between evaluations; 0: only at the end (default 0)", run);
    f("evaluate_batches", evaluate_batches, "N", "global batches that an evaluation takes at most (default 20)", run);
    f("checkpoint_every", checkpoint_every, "N", "steps between checkpoints; 0: only at the end (default 0)",
      "Checkpoints");
    f("keep", keep, "N", "so many checkpoints stay, the newest ones; 0: all (default 0)", "Checkpoints");
    f("on_nan", on_nan, "NAME",
      "where loss or gradient is not finite: stop (exit code 4), saying where it came from, or skip the update, which "
      "needs --clip (default stop)",
      run);
  }
};

struct TrainOptions {
  SweepOptions sweep;
  TrainFields fields;
  RankOptions ranks;
  std::string backend = "auto";
  std::string strategy;  // empty: bucketed
  ShardFlags shard;
  std::string log;  // a file; empty: log.jsonl beside the checkpoints, where there are any
  std::string out, resume;
  bool resume_if_possible = false;
  bool fit = false;  // the micro-batch follows from the memory there is
};

Json to_json(TrainFields fields);
TrainFields overlaid(TrainFields base, TrainFields over);  // what `over` gives wins
TrainFields train_fields_from_json(const Json& config, const std::string& where);
TrainFields train_fields_from_file(const std::string& path);  // what --config names; a model's alone has none of them

}  // namespace sinter::lab
