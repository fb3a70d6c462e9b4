// sinter generate
#include "lab/command.h"

#include "lab/generate/generate.h"

namespace sinter::lab {
namespace {

const char* const examples = R"(Examples:
  sinter generate --checkpoint run --prompt "Once upon a time" --tokens 300
  sinter generate --checkpoint run --prompt-file start.txt --temperature 0.7 --top-p 0.9 --samples 3
  sinter generate --checkpoint run --prompt "Q: " --temperature 0 --stop "Q: "
  sinter generate --checkpoint llama --prompt-ids 1,15043 --tokens 20)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    GenerateOptions generate;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  GenerateOptions& o = g->generate;
  const char *text = "Text", *sampling = "Sampling", *run = "Run";
  flags.add("--checkpoint", o.checkpoint, "DIR", "what sinter train --out wrote; the newest in it, or one of them",
            text);
  flags.add("--prompt", o.prompt, "TEXT", "what is continued, by a model whose tokens are bytes", text);
  flags.add("--prompt-file", o.prompt_file, "FILE", "the same from a file", text);
  flags.add("--prompt-ids", o.prompt_ids, "N,..", "the same as token ids, for any vocabulary", text);
  flags.add("--tokens", o.tokens, "N", "how many to add at most (default 200)", text);
  flags.add("--samples", o.samples, "N", "continuations, each with random numbers of its own (default 1)", text);
  flags.add("--stop", o.stop, "TEXT", "a continuation ends before this text", text);
  flags.add("--stop-ids", o.stop_ids, "N,..", "a continuation ends with any of these tokens", text);
  flags.add("--temperature", o.sampling.temperature, "X",
            "logits are divided by it: less is more certain; 0 takes the most likely token (default 0.8)", sampling);
  flags.add("--top-k", o.sampling.top_k, "N", "only the N most likely tokens (default all)", sampling);
  flags.add("--top-p", o.sampling.top_p, "X", "only the fewest tokens whose probabilities reach X (default 1, all)",
            sampling);
  flags.add("--seed", o.sampling.seed, "N", "of the random numbers (default 0)", sampling);
  add_device_flag(flags, o.sweep.device, run);
  flags.add("--dtype", o.sweep.dtype, "NAME", "fp32, tf32, bf16, fp16 (default: what the model was trained in)", run);
  flags.add("--attention", o.sweep.attention, "NAME", std::string(attention_help) + " (default auto)", run);
  flags.add("--ctx", o.sweep.ctx, "N", "positions, if more are wanted than the model was trained with", run);
  flags.add("--threads", o.sweep.threads, "N", "of the CPU (default: all cores)", run);
  flags.add("--logits", o.logits, "FILE.safetensors", "write the prompt's ids, and the logits after each of them",
            "Output");
  flags.add("--json", g->output.json, "FILE|-",
            "write ids, text and times to this file; - writes them, and nothing else, to stdout", "Output");
  return [g, program] {
    if (g->generate.prompt_file) g->output.reads = {{"--prompt-file", *g->generate.prompt_file}};
    return generate(g->generate, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> generate_commands() {
  return {{"generate", "continue a text with a trained model", examples, declare, generate_view}};
}

}  // namespace sinter::lab
