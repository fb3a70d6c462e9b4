#include "cli/app.h"

namespace sinter::cli {

CLI::Option* add_text(CLI::App& command, const std::string& flag, std::string& value, const std::string& help,
                      const std::string& type, const std::string& group) {
  auto not_empty = [](const std::string& s) { return s.empty() ? std::string("the value is empty") : std::string(); };
  return command.add_option(flag, value, help)->type_name(type)->group(group)->check(not_empty);
}

void add_output_flags(CLI::App& command, lab::OutputOptions& o, Plot plot) {
  add_text(command, "--json", o.json, "write the record to this file; - writes it, and nothing else, to stdout",
           "FILE|-", "Output");
  add_text(command, "--table", o.table, "write the tables to this file", "FILE.md|.csv|.tex", "Output");
  if (plot == Plot::yes) add_text(command, "--plot", o.plot, "write a plot to this file", "FILE.svg|.html", "Output");
}

}  // namespace sinter::cli
