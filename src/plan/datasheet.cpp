#include "plan/peaks.h"

namespace sinter::plan {
namespace {

struct Sheet {
  const char* name;  // part of the device name; the first match counts, so special forms stand before general ones
  double bf16, fp16, tf32, fp32;  // TFLOP/s, dense; 0: it has none
  double bandwidth;               // TB/s
};

constexpr Sheet sheets[] = {
    {"GB200", 2500, 2500, 1250, 80, 8.0},
    {"B200", 2250, 2250, 1125, 75, 8.0},
    {"GH200", 989, 989, 494, 67, 4.0},
    {"H200", 989, 989, 494, 67, 4.8},
    {"H100 PCIe", 756, 756, 378, 51, 2.0},
    {"H100 NVL", 835, 835, 417, 60, 3.9},
    {"H100", 989, 989, 494, 67, 3.35},
    {"A100-SXM4-80GB", 312, 312, 156, 19.5, 2.039},
    {"A100 80GB", 312, 312, 156, 19.5, 1.935},
    {"A100", 312, 312, 156, 19.5, 1.555},
    {"RTX A6000", 155, 155, 77.4, 38.7, 0.768},
    {"A40", 150, 150, 74.8, 37.4, 0.696},
    {"A30", 165, 165, 82, 10.3, 0.933},
    {"A10G", 70, 70, 35, 35, 0.6},
    {"A10", 125, 125, 62.5, 31.2, 0.6},
    {"L40S", 362, 362, 183, 91.6, 0.864},
    {"L40", 181, 181, 90.5, 90.5, 0.864},
    {"L4", 121, 121, 60, 30.3, 0.3},
    {"RTX 5090", 209, 209, 105, 105, 1.792},
    {"RTX 4090", 165, 165, 82.6, 82.6, 1.008},
    {"RTX 3090", 71, 71, 35.6, 35.6, 0.936},
    {"T4", 0, 65, 0, 8.1, 0.32},
    {"V100", 0, 125, 0, 15.7, 0.9},
};

const Sheet* sheet_of(const std::string& device_name) {
  for (const Sheet& s : sheets)
    if (device_name.find(s.name) != std::string::npos) return &s;
  return nullptr;
}

}  // namespace

std::optional<double> datasheet_product(const std::string& device_name, const std::string& dtype) {
  const Sheet* s = sheet_of(device_name);
  if (!s) return {};
  double tera = dtype == "bf16"   ? s->bf16
                : dtype == "fp16" ? s->fp16
                : dtype == "tf32" ? s->tf32
                : dtype == "fp32" ? s->fp32
                                  : 0;
  if (tera == 0) return {};
  return tera * 1e12;
}

std::optional<double> datasheet_bandwidth(const std::string& device_name) {
  const Sheet* s = sheet_of(device_name);
  if (!s) return {};
  return s->bandwidth * 1e12;
}

}  // namespace sinter::plan
