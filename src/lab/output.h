// The one output rule: tables on stdout, progress on stderr; the record, a table or a plot in files on request.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "lab/flags.h"
#include "lab/view.h"

namespace sinter::lab {

using NamedFiles = std::vector<std::pair<const char*, std::string>>;  // the flag, and the file it names or ""

struct OutputOptions {
  std::string json;   // FILE, or "-": the record alone on stdout
  std::string table;  // FILE.md, .csv or .tex
  std::string plot;   // FILE.svg or .html
  bool wide = false;  // text tables with all columns, however wide
  NamedFiles reads;   // what the command reads must not be written over
};
// --json, --table, --plot and --wide, the same for every command.
enum class Plot { no, yes };
void add_output_flags(Flags& flags, OutputOptions& options, Plot plot);

// Refuses wrong suffixes, unwritable places and one file named twice, before any work. `more`: other files of the
// command.
void check_output(const OutputOptions& options, const NamedFiles& more = {});
struct Artefact {  // a file of the command besides its record
  const char* flag;
  std::string path;
  std::function<std::string()> text;  // empty: there is none
};
void write_output(const OutputOptions& options, const Json& record, const std::vector<Artefact>& files = {});
void write_record(const OutputOptions& options, const Json& record);  // where --json names a file

size_t text_width();  // that of the terminal, and 100 columns where there is none

// One line on stderr: overwritten in place on a terminal; elsewhere only `done` prints.
class Progress {
 public:
  explicit Progress(bool silent = false);
  ~Progress();
  void begin(size_t number, size_t all);  // which of how many cases the next lines are about
  void now(const std::string& what);
  void done(const std::string& what);

 private:
  bool silent_, terminal_;
  bool dirty_ = false;
  std::string which_;  // "[3/12] "
};

}  // namespace sinter::lab
