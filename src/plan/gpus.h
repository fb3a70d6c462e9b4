// GPUs people have: what the vendor states, and what passes and predictions need to know of one that is not here.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"

namespace sinter::plan {

struct Gpu {
  const char* name;  // part of the device's name; the first match counts, so special forms stand before general ones
  int compute_capability, multiprocessors;
  double bf16, fp16, tf32, fp32;  // TFLOP/s, dense, fp32 accumulation; 0: it has none
  double bandwidth;               // TB/s
  // Of those that predictions are made for by name (--card).
  const char* card = nullptr;  // "4090-24"
  int64_t memory_mib = 0;  // what the driver reports in all: a little less than the name says, for ECC and the driver
  int64_t cache_mib = 0;   // L2

  // As its backend would describe it, with every kernel that can be built for it.
  DeviceInfo info() const;
};
const Gpu* gpu_of(const std::string& device_name);  // or of a card; null: not in the table

std::vector<const Gpu*> known_cards();           // the smallest first
const Gpu& card_named(const std::string& card);  // refuses unknown ones, listing those there are

// What a prediction is made for where nothing else is said: the device itself, or for a GPU
// that is not here the largest card.
DeviceInfo device_or_card(DeviceType device);

// By --dtype in FLOP/s, and in B/s.
std::optional<double> datasheet_product(const std::string& device_name, const std::string& dtype);
std::optional<double> datasheet_bandwidth(const std::string& device_name);

}  // namespace sinter::plan
