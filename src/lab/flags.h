// The flags of a command, as data: cli/ reads the command line into them.
#pragma once
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/device.h"

namespace sinter::lab {

struct Flag {
  std::string name;  // "--ctx"
  std::string type;  // of its value, for people: "N,.."; empty: it has none
  std::string help;
  std::string group;                              // the heading it stands under; empty: not shown
  std::function<void(const std::string&)> value;  // takes what was given, or refuses it
};

// Values as they are given: one, or several with commas. Every complaint names the flag.
std::vector<std::string> split(const std::string& flag, const std::string& text);

template <class T> T value_of(const std::string& flag, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return true;  // it was given
  } else {
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size(), "{} {}: not a {}", flag, text,
          std::is_integral_v<T> ? "whole number that fits in 64 bits" : "number");
    if constexpr (std::is_floating_point_v<T>) check(std::isfinite(value), "{} {}: must be finite", flag, text);
    return value;
  }
}
template <class T> void read_value(const std::string& flag, const std::string& text, T& out) {
  out = value_of<T>(flag, text);
}
template <class T> void read_value(const std::string& flag, const std::string& text, std::optional<T>& out) {
  out = value_of<T>(flag, text);
}
template <class T> void read_value(const std::string& flag, const std::string& text, std::vector<T>& out) {
  out.clear();
  for (const std::string& part : split(flag, text)) out.push_back(value_of<T>(flag, part));
}

class Flags {
 public:
  // The value must outlive the reading of the command line.
  template <class T>
  void add(const std::string& name, T& value, const std::string& type, const std::string& help,
           const std::string& group) {
    all.push_back({name, type, help, group, [name, &value](const std::string& s) { read_value(name, s, value); }});
  }
  template <class T>
  void add_switch(const std::string& name, T& value, const std::string& help, const std::string& group) {
    add(name, value, "", help, group);
  }

  std::vector<Flag> all;
};

// "80GB" is 80·10⁹ bytes, as is "80"; "80GiB" is 80·2³⁰.
double bytes_named(const std::string& flag, const std::string& text);

std::string flag_named(const std::string& field);  // d_model -> --d-model

// --device, the same for every command that runs something.
void add_device_flag(Flags& flags, std::optional<std::string>& device, const std::string& group);
// What it says, or the default: cpu or cuda, once the GPU that cuda:N names has been chosen for this process.
std::string chosen_device(const std::optional<std::string>& flag);

// What commands with a model and with attention alone say of the same flags.
constexpr const char* attention_help =
    "naive (scores are kept), flash (they are not), tiled (CPU, the readable reference), portable (CUDA), or auto: "
    "flash where there is a kernel, otherwise naive";
constexpr const char* deterministic_help = "the same bits every time, also from flash attention's backward pass";
constexpr const char* python_help = "the python that has PyTorch (default python3)";

}  // namespace sinter::lab
