#include "lab/output.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "lab/memory_plot.h"

namespace sinter::lab {
namespace {

namespace fs = std::filesystem;

std::string suffix_of(const std::string& path) { return fs::path(path).extension().string(); }

TableFormat table_format(const std::string& path) {
  std::string s = suffix_of(path);
  if (s == ".md") return TableFormat::markdown;
  if (s == ".csv") return TableFormat::csv;
  if (s == ".tex") return TableFormat::latex;
  fail_with(ErrorKind::usage, "--table {}: the name must end in .md, .csv or .tex", path);
}

// A device or a pipe is written to as it is; anything else is replaced by a finished file.
bool is_special(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

std::string temporary_for(const std::string& path) { return fmt::format("{}.tmp{}", path, getpid()); }

// Where a link points is replaced, not the link.
std::string resolved(const std::string& path) {
  std::error_code error;
  fs::path p = fs::canonical(path, error);
  return error ? path : p.string();
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty() || path == "-" || is_special(path)) return;
  check(!fs::is_directory(path), "{} {}: is a folder; name a file in it", flag, path);
  std::string temporary = temporary_for(resolved(path));
  int fd = open(temporary.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  check(fd >= 0, "{} {}: cannot be written ({}); choose a folder that exists and that you may write to", flag, path,
        std::strerror(errno));
  close(fd);
  unlink(temporary.c_str());
}

void write_all(int fd, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with(ErrorKind::other, "{}: writing failed ({})", path, std::strerror(errno));
    done += size_t(n);
  }
}

}  // namespace

void check_output(const OutputOptions& o, std::vector<std::pair<const char*, std::string>> files) {
  if (!o.table.empty()) table_format(o.table);
  if (!o.plot.empty())
    check(suffix_of(o.plot) == ".svg" || suffix_of(o.plot) == ".html", "--plot {}: the name must end in .svg or .html",
          o.plot);
  files.insert(files.end(), {{"--json", o.json}, {"--table", o.table}, {"--plot", o.plot}});
  std::map<std::string, const char*> named;
  for (const auto& [flag, path] : files) {
    if (path.empty()) continue;
    check_writable(flag, path);
    if (is_special(path)) continue;
    auto [other, added] = named.emplace(fs::absolute(resolved(path)).lexically_normal().string(), flag);
    check(added, "{} {}: {} names the same file", flag, path, other->second);
  }
}

void write_file(const std::string& path, const std::string& text) {
  bool special = is_special(path);
  std::string target = special ? path : resolved(path), temporary = special ? path : temporary_for(target);
  int fd = open(temporary.c_str(), (special ? 0 : O_CREAT | O_TRUNC) | O_WRONLY | O_CLOEXEC, 0644);
  check(fd >= 0, "{}: cannot be written ({})", path, std::strerror(errno));
  try {
    write_all(fd, text, path);
  } catch (...) {
    close(fd);
    if (!special) unlink(temporary.c_str());
    throw;
  }
  close(fd);
  if (!special && rename(temporary.c_str(), target.c_str()) != 0)
    fail_with(ErrorKind::other, "{}: cannot be replaced ({})", path, std::strerror(errno));
}

void write_output(const OutputOptions& o, const Json& record) {
  std::string json = record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (o.json == "-") write_all(STDOUT_FILENO, json, "stdout");
  else if (!o.json.empty()) write_file(o.json, json);

  View view = view_of(record);
  if (o.json != "-") {
    std::string text;
    for (const std::string& line : view.preamble) text += line + "\n";
    if (!view.preamble.empty()) text += "\n";
    write_all(STDOUT_FILENO, text + render(view.tables, TableFormat::text), "stdout");
  }
  if (!o.table.empty()) write_file(o.table, render(view.tables, table_format(o.table)));
  if (!o.plot.empty()) {
    bool html = suffix_of(o.plot) == ".html";
    check(view.chart || view.timeline, "--plot {}: this record holds nothing to plot", o.plot);
    write_file(o.plot, view.timeline ? (html ? memory_timeline_html(*view.timeline, view.preamble, view.tables)
                                             : memory_timeline_svg(*view.timeline))
                       : html        ? to_html(*view.chart, view.preamble, view.tables)
                                     : to_svg(*view.chart));
  }
}

Progress::Progress(bool silent) : silent_(silent), terminal_(isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (dirty_) fmt::print(stderr, "\r\033[K");
}
void Progress::now(const std::string& what) {
  if (silent_ || !terminal_) return;
  fmt::print(stderr, "\r\033[K{}", what);
  std::fflush(stderr);
  dirty_ = true;
}
void Progress::done(const std::string& what) {
  if (silent_) return;
  fmt::print(stderr, "{}{}\n", dirty_ ? "\r\033[K" : "", what);
  dirty_ = false;
}

}  // namespace sinter::lab
