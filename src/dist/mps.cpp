#include "dist/mps.h"

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"

namespace sinter::dist {
namespace fs = std::filesystem;
namespace {

constexpr const char* program = "nvidia-cuda-mps-control";
constexpr double patience_s = 5;

std::string new_folder() {
  const char* running = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  check(!running, "--mps: CUDA_MPS_PIPE_DIRECTORY is set: an MPS of yours is used already; leave the flag out");
  std::string name = (fs::temp_directory_path() / "sinter-mps-XXXXXX").string();
  check(mkdtemp(name.data()) != nullptr, "--mps: no folder can be made at {}; name another place in TMPDIR", name);
  return name;
}

ProcessOptions in_folder(const std::string& folder) {
  ProcessOptions o;
  o.environment = {{"CUDA_MPS_PIPE_DIRECTORY", folder}, {"CUDA_MPS_LOG_DIRECTORY", folder}};
  o.collect_errors = true;
  o.own_group = true;  // its server ends with it
  o.timeout_s = patience_s;
  return o;
}

}  // namespace

Mps::Mps() : folder_(new_folder()), control_({program, "-f"}, in_folder(folder_)) {
  // It serves once its socket is there.
  int64_t begin = steady_ns();
  while (!fs::exists(folder_ + "/control")) {
    std::optional<ProcessResult> ended = control_.wait(0.01);
    if (!ended && double(steady_ns() - begin) < 1e9 * patience_s) continue;
    std::string why = !ended                    ? "it does not begin to serve"
                      : ended->exit_code == 127 ? std::string(program) + " was not found (it comes with the driver)"
                                                : "it ended: " + ended->output;
    control_.stop(1);
    fs::remove_all(folder_);
    fail_with(ErrorKind::usage, "--mps: {}; leave the flag out: ranks then take turns on the GPU", why);
  }
}

Mps::~Mps() {
  ProcessOptions quit = in_folder(folder_);
  quit.timeout_s = 1, quit.grace_s = 0.2;
  run_process({"sh", "-c", std::string("echo quit | ") + program}, quit);
  control_.stop(0.3);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::pair<std::string, std::string>> Mps::variables() const {
  return {{"CUDA_MPS_PIPE_DIRECTORY", folder_}, {"CUDA_MPS_LOG_DIRECTORY", folder_}};
}

bool mps_runs() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  return fs::exists(fs::path(folder ? folder : "/tmp/nvidia-mps") / "control", ignored);  // where CUDA looks
}

}  // namespace sinter::dist
