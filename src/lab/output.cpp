#include "lab/output.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sys/ioctl.h>
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

std::string text_of(const View& view, size_t width) {
  std::string text;
  for (const std::string& line : view.preamble) text += width ? wrapped(line, width, "  ") : line + "\n";
  if (!view.preamble.empty()) text += "\n";
  return text + render_text(view.tables, width);
}

std::string plot_of(const View& view, const std::string& path) {
  bool html = suffix_of(path) == ".html";
  check(view.chart || view.timeline || view.picture, "--plot {}: this record holds nothing to plot", path);
  if (view.timeline)
    return html ? memory_timeline_html(*view.timeline, view.preamble, view.tables)
                : memory_timeline_svg(*view.timeline);
  if (view.picture)
    return html ? to_html(view.picture->title, view.picture->svg, view.preamble, view.tables) : view.picture->svg;
  return html ? to_html(*view.chart, view.preamble, view.tables) : to_svg(*view.chart);
}

std::string record_text(const Json& record) {
  return record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void add_output_flags(Flags& flags, OutputOptions& o, Plot plot) {
  const char* group = "Output";
  flags.add("--json", o.json, "FILE|-", "write the record to this file; - writes it, and nothing else, to stdout",
            group);
  flags.add("--table", o.table, "FILE.md|.csv|.tex", "write the tables to this file", group);
  if (plot == Plot::yes) flags.add("--plot", o.plot, "FILE.svg|.html", "write a plot to this file", group);
  flags.add_switch("--wide", o.wide, "all columns, however wide the terminal is", group);
}

void check_output(const OutputOptions& o, const NamedFiles& more) {
  if (!o.table.empty()) table_format(o.table);
  if (!o.plot.empty())
    check(suffix_of(o.plot) == ".svg" || suffix_of(o.plot) == ".html", "--plot {}: the name must end in .svg or .html",
          o.plot);
  auto place = [](const std::string& path) { return fs::absolute(resolved(path)).lexically_normal().string(); };
  std::map<std::string, const char*> named, read;
  for (const auto& [flag, path] : o.reads)
    if (!path.empty() && !is_special(path)) read.emplace(place(path), flag);
  NamedFiles files = more;
  files.insert(files.end(), {{"--json", o.json}, {"--table", o.table}, {"--plot", o.plot}});
  for (const auto& [flag, path] : files) {
    if (path.empty()) continue;
    check_writable(flag, path);
    if (is_special(path)) continue;
    auto source = read.find(place(path));
    check(source == read.end(), "{} {}: {} reads that file, which would be lost; name another", flag, path,
          source == read.end() ? "" : source->second);
    auto [other, added] = named.emplace(place(path), flag);
    check(added, "{} {}: {} names the same file", flag, path, other->second);
  }
}

size_t text_width() {
  const char* columns = std::getenv("COLUMNS");
  int wanted = columns ? std::atoi(columns) : 0;
  winsize window{};
  if (wanted <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) wanted = window.ws_col;
  return wanted > 0 ? size_t(std::max(wanted, 40)) : 100;
}

void write_record(const OutputOptions& o, const Json& record) {
  if (!o.json.empty() && o.json != "-" && !is_special(o.json)) write_file(o.json, record_text(record));
}

void write_output(const OutputOptions& o, const Json& record, const std::vector<Artefact>& files) {
  // One that fails, a full disk say, costs none of the others; stdout comes last, because its reader may have gone.
  std::exception_ptr failure;
  auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  if (!o.json.empty() && o.json != "-") attempt([&] { write_file(o.json, record_text(record)); });
  for (const Artefact& a : files)
    if (std::string text = a.path.empty() ? "" : a.text(); !text.empty()) attempt([&] { write_file(a.path, text); });
  std::optional<View> view;
  attempt([&] { view = view_of(record); });
  if (view && !o.table.empty()) attempt([&] { write_file(o.table, render(view->tables, table_format(o.table))); });
  if (view && !o.plot.empty()) attempt([&] { write_file(o.plot, plot_of(*view, o.plot)); });
  if (o.json == "-") attempt([&] { write_stdout(record_text(record)); });
  else if (view) attempt([&] { write_stdout(text_of(*view, o.wide ? 0 : text_width())); });
  if (failure) std::rethrow_exception(failure);
}

Progress::Progress(bool silent) : silent_(silent), terminal_(isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (dirty_) say("\r\033[K");
}
void Progress::begin(size_t number, size_t all) {
  which_ = all > 1 ? "[" + std::to_string(number) + "/" + std::to_string(all) + "] " : "";
}
void Progress::now(const std::string& what) {
  if (silent_ || !terminal_) return;
  winsize window{};  // a line that breaks could not be overwritten
  size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col - 1u : 79;
  say("\r\033[K" + cut_to(which_ + what, width));
  dirty_ = true;
}
void Progress::done(const std::string& what) {
  if (silent_) return;
  say((dirty_ ? "\r\033[K" : "") + what + "\n");
  dirty_ = false;
}

}  // namespace sinter::lab
