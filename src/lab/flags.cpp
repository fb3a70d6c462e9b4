#include "lab/flags.h"

#include "backend/device.h"
#include "train/run_config.h"

namespace sinter::lab {

std::vector<std::string> split(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    check(!parts.back().empty(), "{} \"{}\": an empty value; give one, or several with commas", flag, text);
    begin = end + 1;
  }
  return parts;
}

std::string flag_named(const std::string& field) {
  std::string flag = "--" + field;
  for (char& c : flag) c = c == '_' ? '-' : c;
  return flag;
}

void add_device_flag(Flags& flags, std::optional<std::string>& device, const std::string& group) {
  flags.add("--device", device, "cpu|cuda|cuda:N",
            "where to run; cuda is the first GPU, of several ranks each the one at its place; cuda:1 is the second "
            "(default: cuda if there is a GPU)",
            group);
}

std::string chosen_device(const std::optional<std::string>& flag) {
  if (!flag) return default_device();
  if (*flag == "cpu") return *flag;
  size_t colon = flag->find(':');
  std::string kind = flag->substr(0, colon), ordinal = colon == std::string::npos ? "0" : flag->substr(colon + 1);
  bool digits = !ordinal.empty() && ordinal.size() < 5 && ordinal.find_first_not_of("0123456789") == std::string::npos;
  check(kind != "cpu", "--device {}: there is one CPU; choose cpu, and --threads for how much of it", *flag);
  check(kind == "cuda" && digits, "--device {}: unknown; choose cpu, cuda, or a GPU by its number: cuda:0, cuda:1, …",
        *flag);
  if (colon != std::string::npos) choose_gpu(value_of<int>("--device", ordinal));
  return "cuda";
}

double bytes_named(const std::string& flag, const std::string& text) {
  size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  check(end > 0 && number > 0 && number < 1e9 && (unit.empty() || unit == "GB" || unit == "GiB"),
        "{} {}: not an amount of memory; write 80GB or 80GiB", flag, text);
  return number * (unit == "GiB" ? double(1 << 30) : 1e9);
}

}  // namespace sinter::lab
