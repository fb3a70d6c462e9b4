// The one output rule: tables on stdout, progress on stderr; the record, a table or a plot in files on request.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "lab/view.h"

namespace sinter::lab {

struct OutputOptions {
  std::string json;   // FILE, or "-": the record alone on stdout
  std::string table;  // FILE.md, .csv or .tex
  std::string plot;   // FILE.svg or .html
};

// Refuses wrong suffixes, unwritable places and one file named twice, before any work. `more`: other files of the command.
void check_output(const OutputOptions& options, std::vector<std::pair<const char*, std::string>> more = {});
void write_output(const OutputOptions& options, const Json& record);

std::string interrupted_text(size_t finished, size_t all);  // what to tell people whose Ctrl-C ended a sweep

// One line on stderr: overwritten in place on a terminal; elsewhere only `done` prints.
class Progress {
 public:
  explicit Progress(bool silent = false);
  ~Progress();
  void now(const std::string& what);
  void done(const std::string& what);

 private:
  bool silent_, terminal_;
  bool dirty_ = false;
};

}  // namespace sinter::lab
