// The ceilings of this machine: measured (product per type, copy bandwidth), and kept in a file from run to run.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/device.h"

namespace sinter::plan {

// What a machine has shown that it can do: the best of several samples, and how far they lay apart.
struct Peak {
  double best = 0, lowest = 0;  // FLOP/s or B/s; 0 if there was no room to measure
  int samples = 0;
  std::string date;
  bool cached = false;  // read from the file, not measured by this process
};

class Peaks {
 public:
  explicit Peaks(DeviceType device);  // reads the file; measures nothing yet

  // FLOP/s of a large product by --dtype; B/s of a copy, read and write counted. Measured at first use if the file has
  // none to be believed: Note [Doubted peaks] in peaks.cpp.
  const Peak& product_peak(const std::string& dtype);
  const Peak& copy_peak();
  double product(const std::string& dtype) { return product_peak(dtype).best; }
  double copy() { return copy_peak().best; }

  std::optional<double> known_product(const std::string& dtype) const;  // only if the file has it

  void remeasure_product(const std::string& dtype);
  void confirm_product(const std::string& dtype);  // measures again and adds these samples to those it has
  void remeasure_copy();

 private:
  const Peak& peak(const std::string& name, const std::function<Peak()>& measure);
  void keep(const std::string& name, const Peak& peak);
  DeviceType device_;
  std::string machine_;
  std::map<std::string, Peak> known_;  // by "copy", "product bf16"
  std::set<std::string> looked_at_;    // and measured, where that was due
};
std::string peaks_cache_path();

}  // namespace sinter::plan
