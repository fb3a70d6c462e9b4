// --dtype: fp32, tf32, bf16, fp16 (16-bit: mixed precision with fp32 masters), and fp64 on the CPU for checks.
#pragma once
#include <optional>
#include <string>

#include "backend/device.h"
#include "core/kernel_call.h"

namespace sinter {

struct Precision {
  std::string name = "fp32";
  DType master = DType::f32;
  std::optional<DType> compute;
  MathMode math = MathMode::full;
  bool loss_scaling = false;
};
Precision precision_named(const std::string& name);
void check_supported(const Precision& p,
                     const DeviceInfo& device);  // refuses what the device lacks, naming what it has
std::string maths_text(const Precision& p);      // for people

}  // namespace sinter
