#include "lab/output.h"

#include <filesystem>
#include <map>
#include <unistd.h>

#include "core/check.h"
#include "lab/memory/memory_plot.h"
#include "system/files.h"
#include "system/streams.h"

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

void write_output(const OutputOptions& o, const Json& record) {
  std::string json = record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (o.json == "-") write_stdout(json);
  else if (!o.json.empty()) write_file(o.json, json);

  View view = view_of(record);
  if (o.json != "-") {
    std::string text;
    for (const std::string& line : view.preamble) text += line + "\n";
    if (!view.preamble.empty()) text += "\n";
    write_stdout(text + render(view.tables, TableFormat::text));
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

std::string interrupted_text(size_t finished, size_t all) {
  return "interrupted: " + std::to_string(finished) + " of " + std::to_string(all) + " configurations were finished";
}

Progress::Progress(bool silent) : silent_(silent), terminal_(isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (dirty_) say("\r\033[K");
}
void Progress::now(const std::string& what) {
  if (silent_ || !terminal_) return;
  say("\r\033[K" + what);
  dirty_ = true;
}
void Progress::done(const std::string& what) {
  if (silent_) return;
  say((dirty_ ? "\r\033[K" : "") + what + "\n");
  dirty_ = false;
}

}  // namespace sinter::lab
