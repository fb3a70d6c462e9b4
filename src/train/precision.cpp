#include "train/precision.h"

#include "core/check.h"

namespace sinter {

Precision precision_named(const std::string& name) {
  if (name == "fp32") return {name, DType::f32, {}, MathMode::full, false};
  if (name == "tf32") return {name, DType::f32, {}, MathMode::tf32, false};
  if (name == "bf16") return {name, DType::f32, DType::bf16, MathMode::full, false};
  if (name == "fp16") return {name, DType::f32, DType::f16, MathMode::full, true};
  if (name == "fp64") return {name, DType::f64, {}, MathMode::full, false};
  fail_with(ErrorKind::usage, "--dtype {}: unknown; choose fp32, tf32, bf16 or fp16", name);
}

void check_supported(const Precision& p, const DeviceInfo& device) {
  if (device.type == DeviceType::cpu) {
    check(p.math != MathMode::tf32, "--dtype tf32: only CUDA tensor cores have it; use --dtype fp32 on the CPU");
    return;
  }
  check(p.master != DType::f64, "--dtype fp64: only on the CPU, for checks");
  int cc = device.compute_capability;
  check(p.compute != DType::bf16 || cc >= 80,
        "--dtype bf16: this GPU (compute capability {}.{}) has no bf16; use --dtype fp16", cc / 10, cc % 10);
  check(p.math != MathMode::tf32 || cc >= 80,
        "--dtype tf32: this GPU (compute capability {}.{}) has no tf32; use --dtype fp32", cc / 10, cc % 10);
}

std::string maths_text(const Precision& p) {
  if (p.compute)
    return fmt::format("{} mixed precision: {} products, fp32 sums, masters and gradients", p.name, p.name);
  if (p.math == MathMode::tf32) return "fp32 data, tf32 tensor-core products";
  return p.name + " throughout";
}

}  // namespace sinter
