#include "lab/peer_script.h"

#include <filesystem>

#include "core/check.h"
#include "lab/machine.h"
#include "system/build_info.h"
#include "system/process.h"
#include "system/signals.h"

namespace sinter::lab {

namespace fs = std::filesystem;

std::string peer_script(const std::string& file) {
  const BuildInfo& build = build_info();
  fs::path installed = fs::path(own_executable()).parent_path().parent_path() / build.install_peers / file;
  fs::path in_source = fs::path(build.source_dir) / "bench" / "peers" / file;
  for (const fs::path& p : {in_source, installed})
    if (fs::exists(p)) return p.string();
  fail_with(ErrorKind::usage,
            "--peer: the script {} is neither at {} nor at {}; run from a source tree or install sinter", file,
            in_source.string(), installed.string());
}

std::optional<std::string> torch_version(const std::string& python) {
  ProcessResult p = run_process({python, "-c", "import torch; print(torch.__version__)"}, {.quiet = true});
  if (p.exit_code != 0) return {};
  return p.output.substr(0, p.output.find('\n'));
}

PeerCommand peer_command(const std::string& python, const std::string& file, const MeasuredRun& run) {
  PeerCommand c{{python, peer_script(file)}};
  c.add("--dtype", run.precision.name);
  c.add("--d-model", run.model.d_model);
  c.add("--d-ff", run.model.d_ff);
  c.add("--layers", run.model.layers);
  c.add("--heads", run.model.heads);
  c.add("--vocab", run.model.vocab);
  c.add("--ctx", run.model.ctx);
  c.add("--batch", run.batch);
  c.add("--warmup", run.warmup);
  c.add("--lr", run.adamw.learning_rate);
  c.add("--clip", run.adamw.max_norm);
  return c;
}

Json peer_reply(const std::vector<std::string>& command, std::string& why_not) {
  ProcessResult p = run_process(command, {.quiet = true, .until_interrupted = true});
  if (interrupted()) return nullptr;
  Json reply = Json::parse(p.output, nullptr, false);
  if (reply.is_object() && reply.contains("results")) return reply;
  why_not = reply.is_object() && reply.contains("error") ? reply["error"].get<std::string>()
                                                         : fmt::format("exit code {} and no result", p.exit_code);
  return nullptr;
}

}  // namespace sinter::lab
