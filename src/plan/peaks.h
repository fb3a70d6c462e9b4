// The ceilings of this machine: measured (product per type, copy bandwidth), cached per machine.
#pragma once
#include <string>

#include "core/device.h"
#include "system/json.h"

namespace sinter::plan {

class Peaks {
 public:
  explicit Peaks(DeviceType device);  // reads the cache; measures nothing yet

  // FLOP/s of a large product by --dtype; B/s of a copy, read and write counted. 0 if there is no room to measure.
  double product(const std::string& dtype);
  double copy();
  void remeasure_product(const std::string& dtype);
  void confirm_product(const std::string& dtype);  // measures again and keeps the better of the two
  void remeasure_copy();
  const Json& known() const { return known_; }  // {"product": {dtype: FLOP/s}, "copy": B/s, "date": …}

 private:
  void keep();
  DeviceType device_;
  std::string key_;
  Json known_;
};
std::string peaks_cache_path();

}  // namespace sinter::plan
