#include "plan/gpus.h"

#include <algorithm>

#include "core/check.h"

namespace sinter::plan {
namespace {

// clang-format off
constexpr Gpu gpus[] = {
    // name             cc   SMs   bf16  fp16  tf32  fp32  bandwidth
    {"GB200",           100, 148,  2500, 2500, 1250, 80,   8.0},
    {"B200",            100, 148,  2250, 2250, 1125, 75,   8.0},
    {"GH200",           90,  132,  989,  989,  494,  67,   4.0},
    {"H200",            90,  132,  989,  989,  494,  67,   4.8,   "H200-141", 143156, 60},
    {"H100 PCIe",       90,  114,  756,  756,  378,  51,   2.0},
    {"H100 NVL",        90,  132,  835,  835,  417,  60,   3.9},
    {"H100",            90,  132,  989,  989,  494,  67,   3.35,  "H100-80",  81079,  50},
    {"A100-SXM4-80GB",  80,  108,  312,  312,  156,  19.5, 2.039, "A100-80",  81153,  40},
    {"A100 80GB",       80,  108,  312,  312,  156,  19.5, 1.935},
    {"A100",            80,  108,  312,  312,  156,  19.5, 1.555, "A100-40",  40370,  40},
    {"RTX A6000",       86,  84,   155,  155,  77.4, 38.7, 0.768},
    {"A40",             86,  84,   150,  150,  74.8, 37.4, 0.696},
    {"A30",             80,  56,   165,  165,  82,   10.3, 0.933},
    {"A10G",            86,  80,   70,   70,   35,   35,   0.6},
    {"A10",             86,  72,   125,  125,  62.5, 31.2, 0.6},
    {"L40S",            89,  142,  362,  362,  183,  91.6, 0.864},
    {"L40",             89,  142,  181,  181,  90.5, 90.5, 0.864},
    {"L4",              89,  58,   121,  121,  60,   30.3, 0.3},
    {"RTX 5090",        120, 170,  209,  209,  105,  105,  1.792},
    {"RTX 4090",        89,  128,  165,  165,  82.6, 82.6, 1.008, "4090-24",  24080,  72},
    {"RTX 3090",        86,  82,   71,   71,   35.6, 35.6, 0.936},
    {"T4",              75,  40,   0,    65,   0,    8.1,  0.32,  "T4-16",    15109,  4},
    {"V100",            70,  80,   0,    125,  0,    15.7, 0.9},
};
// clang-format on

}  // namespace

DeviceInfo Gpu::info() const {
  DeviceInfo i;
  i.type = DeviceType::cuda;
  i.name = card ? card : name;
  i.memory_bytes = memory_mib << 20;
  i.compute_capability = compute_capability;
  i.multiprocessors = multiprocessors;
  i.cache_bytes = cache_mib << 20;
  i.hopper_kernels = compute_capability == 90;
  return i;
}

const Gpu* gpu_of(const std::string& device_name) {
  for (const Gpu& g : gpus)
    if (g.card && device_name == g.card) return &g;
  for (const Gpu& g : gpus)
    if (device_name.find(g.name) != std::string::npos) return &g;
  return nullptr;
}

std::vector<const Gpu*> known_cards() {
  std::vector<const Gpu*> cards;
  for (const Gpu& g : gpus)
    if (g.card) cards.push_back(&g);
  std::sort(cards.begin(), cards.end(), [](const Gpu* a, const Gpu* b) { return a->memory_mib < b->memory_mib; });
  return cards;
}

const Gpu& card_named(const std::string& card) {
  std::string all;
  for (const Gpu* g : known_cards()) {
    if (g->card == card) return *g;
    all += (all.empty() ? "" : ", ") + std::string(g->card);
  }
  fail_with(ErrorKind::usage, "--card {}: unknown; choose one of {}", card, all);
}

DeviceInfo device_or_card(DeviceType device) {
  if (device == DeviceType::cuda && !cuda_backend()) return known_cards().back()->info();
  return backend_of(device).info();
}

std::optional<double> datasheet_product(const std::string& device_name, const std::string& dtype) {
  const Gpu* g = gpu_of(device_name);
  if (!g) return {};
  double tera = dtype == "bf16"   ? g->bf16
                : dtype == "fp16" ? g->fp16
                : dtype == "tf32" ? g->tf32
                : dtype == "fp32" ? g->fp32
                                  : 0;
  if (tera == 0) return {};
  return tera * 1e12;
}

std::optional<double> datasheet_bandwidth(const std::string& device_name) {
  const Gpu* g = gpu_of(device_name);
  if (!g) return {};
  return g->bandwidth * 1e12;
}

}  // namespace sinter::plan
