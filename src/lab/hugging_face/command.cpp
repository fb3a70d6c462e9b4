// sinter export, sinter import
#include "lab/command.h"

#include "lab/hugging_face/hugging_face.h"

namespace sinter::lab {
namespace {

Command::Run declare_export(Flags& flags, const Program& program) {
  struct Given {
    std::string checkpoint, folder, dtype = "fp32";
  };
  auto g = std::make_shared<Given>();
  flags.add("--checkpoint", g->checkpoint, "DIR", "what sinter train --out wrote; the newest in it, or one of them",
            "Options");
  flags.add("--hf", g->folder, "DIR", "a new folder, for config.json and model.safetensors", "Options");
  flags.add("--dtype", g->dtype, "NAME", "of the weights in the file: fp32, bf16 or fp16 (default fp32, exact)",
            "Options");
  return [g, program] { return export_model(g->checkpoint, g->folder, g->dtype, program.make_model); };
}

Command::Run declare_import(Flags& flags, const Program& program) {
  struct Given {
    std::string folder, out;
  };
  auto g = std::make_shared<Given>();
  flags.add("--hf", g->folder, "DIR", "config.json, and model.safetensors or several files with an index", "Options");
  flags.add("--out", g->out, "DIR", "a new folder, for the checkpoint", "Options");
  return [g, program] { return import_model(g->folder, g->out, program.make_model); };
}

View no_view(const Json&) { fail(ErrorKind::usage, "export and import write no records"); }

}  // namespace

std::vector<Command> hugging_face_commands() {
  return {
      {"export", "a checkpoint as a folder that Hugging Face's transformers loads",
       "Examples:\n  sinter export --checkpoint run --hf llama\n  sinter export --checkpoint run --hf llama "
       "--dtype bf16",
       declare_export, no_view},
      {"import", "a Llama of Hugging Face's transformers as a checkpoint",
       "Examples:\n  sinter import --hf Llama-3.2-1B --out llama\n  sinter generate --checkpoint llama --prompt-ids "
       "128000,9906 --tokens 20",
       declare_import, no_view}};
}

}  // namespace sinter::lab
