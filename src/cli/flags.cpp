#include "backend/device.h"
#include "cli/app.h"
#include "cli/list.h"
#include "train/run_config.h"

namespace sinter::cli {

CLI::Option* add_text(CLI::App& command, const std::string& flag, std::string& value, const std::string& help,
                      const std::string& type, const std::string& group) {
  // The parser takes whatever follows; a second option there means that the first one's value was forgotten.
  auto is_value = [](const std::string& s) {
    if (s.rfind("--", 0) == 0) return "its value is missing: " + s + " follows";
    return std::string(s.empty() ? "the value is empty" : "");
  };
  return command.add_option(flag, value, help)->type_name(type)->group(group)->check(is_value);
}

void add_device_flag(CLI::App& command, std::string& value, const std::string& group) {
  add_text(command, "--device", value,
           "where to run; cuda is the first GPU, cuda:0, and cuda:1 the second (default: cuda if there is a GPU)",
           "cpu|cuda|cuda:N", group);
}

std::string device_of(const std::string& flag) {
  if (flag.empty()) return default_device();
  if (flag == "cpu") return flag;
  size_t colon = flag.find(':');
  std::string kind = flag.substr(0, colon), ordinal = colon == std::string::npos ? "0" : flag.substr(colon + 1);
  bool digits = !ordinal.empty() && ordinal.size() < 5 && ordinal.find_first_not_of("0123456789") == std::string::npos;
  check(kind != "cpu", "--device {}: there is one CPU; choose cpu, and --threads for how much of it", flag);
  check(kind == "cuda" && digits, "--device {}: unknown; choose cpu, cuda, or a GPU by its number: cuda:0, cuda:1, …",
        flag);
  choose_gpu(number<int>("--device", ordinal));
  return "cuda";
}

void add_output_flags(CLI::App& command, lab::OutputOptions& o, Plot plot) {
  add_text(command, "--json", o.json, "write the record to this file; - writes it, and nothing else, to stdout",
           "FILE|-", "Output");
  add_text(command, "--table", o.table, "write the tables to this file", "FILE.md|.csv|.tex", "Output");
  if (plot == Plot::yes) add_text(command, "--plot", o.plot, "write a plot to this file", "FILE.svg|.html", "Output");
}

}  // namespace sinter::cli
