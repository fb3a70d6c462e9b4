#include "lab/train/log.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "system/files.h"

namespace sinter::lab {
namespace {

bool is_line(const Json& j) { return j.is_object() && j.contains("step") && j["step"].is_number_integer(); }

// Without the last line if a killed process has left only its beginning.
std::vector<Json> lines_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  check(bool(in), "{}: cannot be opened ({}); check the path", path, std::strerror(errno));
  std::vector<Json> lines;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    Json line = Json::parse(text, nullptr, false);
    if (in.eof() && !is_line(line)) break;
    check(is_line(line), "{}: line {} is no line of a training log, which is a JSON object with a \"step\"", path,
          number);
    lines.push_back(std::move(line));
  }
  return lines;
}

bool holds_something(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0;
}

}  // namespace

void refuse_existing_log(const std::string& path) {
  check(!holds_something(path),
        "--log {}: there is a log already, which would be lost; name another file, or remove it", path);
}

TrainingLog::TrainingLog(const std::string& path, std::optional<int64_t> after) : path_(path) {
  if (path.empty()) return;
  if (holds_something(path)) {
    if (!after) refuse_existing_log(path);
    std::string kept;
    for (const Json& line : lines_of(path)) {
      if (line["step"].get<int64_t>() > *after) continue;
      kept += line.dump() + "\n";
      elapsed_s_ = line.value("elapsed_s", elapsed_s_);
    }
    write_file(path, kept);
  }
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  check(fd_ >= 0, "--log {}: cannot be written ({}); choose a folder that exists and that you may write to", path,
        std::strerror(errno));
}

TrainingLog::~TrainingLog() {
  if (fd_ >= 0) close(fd_);
}

std::string TrainingLog::add(const Json& line) {
  if (fd_ < 0 || written(fd_, line.dump() + "\n") || std::exchange(failed_, true)) return "";
  return fmt::format("--log {}: writing failed ({}); training goes on", path_, std::strerror(errno));
}

bool is_training_log(const std::string& path) {
  std::error_code error;  // opening it will say
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream in(path, std::ios::binary);
  std::string first;
  constexpr size_t longest = 1 << 16;
  for (char c; first.size() < longest && in.get(c) && c != '\n';) first += c;
  return is_line(Json::parse(first, nullptr, false));
}

std::vector<Json> read_log(const std::string& path) {
  std::vector<Json> lines = lines_of(path);
  check(!lines.empty(), "{}: the log has no line yet", path);
  return lines;
}

Curve curve_of(const std::vector<Json>& lines) {
  Curve c;
  for (const Json& line : lines) {
    auto step = line["step"].get<int64_t>();
    if (line.contains("loss") && line["loss"].is_number())
      c.steps.push_back(step), c.loss.push_back(line["loss"].get<double>());
    if (line.contains("validation_loss") && line["validation_loss"].is_number())
      c.validation_steps.push_back(step), c.validation_loss.push_back(line["validation_loss"].get<double>());
  }
  return c;
}

}  // namespace sinter::lab
