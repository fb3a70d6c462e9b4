#include "plan/machine.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <sstream>

#include "core/check.h"
#include "ops/context.h"
#include "plan/gpus.h"
#include "system/cache_files.h"
#include "system/json_fields.h"

namespace sinter::embedded {
extern const std::string_view machines;  // src/plan/machines.json
}

namespace sinter::plan {
namespace {

// Of datasheets: the row of the table of GPUs, memory in 10⁹ bytes where that has none, and which parts of its peaks
// training steps have been seen to reach on its generation (docs/plan.md says by whom).
struct Sheet {
  const char *name, *gpu;
  double memory_gb, reach, attention_forward;
};
constexpr Sheet sheets[] = {
    {"t4", "T4", 0, 0.6, 0.3},          {"a10", "A10", 24, 0.7, 0.4},       {"l4", "L4", 24, 0.7, 0.4},
    {"l40s", "L40S", 48, 0.7, 0.4},     {"3090", "RTX 3090", 24, 0.8, 0.4}, {"4090", "RTX 4090", 0, 0.8, 0.4},
    {"5090", "RTX 5090", 32, 0.8, 0.4}, {"a100-40", "A100", 0, 0.9, 0.47},  {"a100", "A100-SXM4-80GB", 0, 0.9, 0.47},
    {"h100", "H100", 0, 0.72, 0.3},     {"h200", "H200", 0, 0.72, 0.3},     {"b200", "B200", 180, 0.7, 0.25},
};

Machine of_sheet(const Sheet& s) {
  const Gpu& gpu = *gpu_of(s.gpu);
  Machine m;
  m.name = s.name;
  m.target = gpu.info();
  m.memory_bytes = gpu.memory_mib > 0 ? double(gpu.memory_mib << 20) : s.memory_gb * 1e9;
  for (const char* dtype : {"bf16", "fp16", "tf32", "fp32"})
    if (auto peak = datasheet_product(gpu.name, dtype))
      m.products[dtype] = {*peak, std::string(dtype) == "fp32" ? 0.8 : s.reach, 115};
  m.attention = {s.attention_forward, 0.85 * s.attention_forward, 300};
  m.bandwidth = 0.82 * gpu.bandwidth * 1e12;
  m.call_s = 2e-6, m.host_call_s = 6e-6;
  m.overlap = 0.25;
  return m;
}

Machine read(JsonFields j, const std::string& otherwise) {
  Machine m;
  m.name = j.text("name", otherwise);
  std::string source = j.text("source");
  if (source != "datasheet" && source != "measured")
    j.refuse("source", source + " is unknown; choose datasheet or measured");
  m.source = source == "measured" ? Machine::measured : Machine::datasheet;
  j.text("of", "");
  m.date = j.text("date", "");
  std::string device = j.text("device");
  if (device != "cpu" && device != "cuda") j.refuse("device", device + " is unknown; choose cpu or cuda");
  if (device == "cpu") m.target = target_of(DeviceType::cpu);
  else if (const Gpu* gpu = gpu_of(j.text("gpu", "H200"))) m.target = gpu->info();
  else j.refuse("gpu", j.text("gpu") + " is none that sinter knows; write a name such as H100, A100 or RTX 4090");
  m.memory_bytes = j.number("memory_bytes", 1e6, 1e18);
  for (auto& [dtype, p] : j.named("products")) {
    m.products[dtype] = {p.number("peak", 1e6, 1e20), p.number("reach", 0.01, 1.1), p.number("edge", 0, 1e6)};
    p.finish();
  }
  if (m.products.empty()) j.refuse("products", "has no type; say peak, reach and edge of one at least");
  if (j.has("attention")) {
    JsonFields a = j.object("attention");
    m.attention = {a.number("forward", 0.001, 1.1), a.number("backward", 0.001, 1.1), a.number("edge", 0, 1e6)};
    a.finish();
  }
  m.bandwidth = j.number("bandwidth", 1e6, 1e18);
  m.call_s = j.number("call_s", 0, 1);
  m.host_call_s = j.number("host_call_s", 0, 1);
  m.overlap = j.number("overlap", 0, 1);
  if (j.has("product_flops")) {
    std::vector<double> range = j.numbers("product_flops", 0, 1e30);
    if (range.size() != 2 || range[0] > range[1]) j.refuse("product_flops", "must be two numbers, the smaller first");
    m.product_flops = {range[0], range[1]};
  }
  j.finish();
  return m;
}

}  // namespace

const ProductRate& Machine::product(const std::string& dtype) const {
  if (auto found = products.find(dtype); found != products.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, rate] : products) names.push_back(known);
  fail_with(ErrorKind::usage, "--machine {}: it has no rate for {}; it has {}", name, dtype, fmt::join(names, ", "));
}

Machine machine_named(const std::string& name) {
  for (const Sheet& s : sheets)
    if (name == s.name) return of_sheet(s);
  JsonFields shipped = JsonFields::of_text("sinter's own machines", std::string(embedded::machines));
  for (auto& [known, fields] : shipped.named("machines"))
    if (known == name) return read(fields, known);
  check(std::filesystem::exists(name), "--machine {}: neither a file nor one of {}; sinter plan calibrate makes a file",
        name, fmt::join(known_machines(), ", "));
  Machine m = read(JsonFields(name), std::filesystem::path(name).stem());
  std::ostringstream all;
  all << std::ifstream(name).rdbuf();
  m.hash = hash_name(all.str());
  return m;
}

std::vector<std::string> known_machines() {
  std::vector<std::string> names;
  for (const Sheet& s : sheets) names.emplace_back(s.name);
  JsonFields shipped = JsonFields::of_text("sinter's own machines", std::string(embedded::machines));
  for (auto& [known, fields] : shipped.named("machines")) names.push_back(known);
  return names;
}

std::string machine_json(const Machine& m) {
  Json j = {{"name", m.name},
            {"source", m.source == Machine::measured ? "measured" : "datasheet"},
            {"device", name_of(m.target.type)},
            {"memory_bytes", m.memory_bytes}};
  if (!m.date.empty()) j["date"] = m.date;
  if (m.target.type == DeviceType::cuda) j["gpu"] = m.target.name;
  for (const auto& [dtype, p] : m.products)
    j["products"][dtype] = {{"peak", p.peak}, {"reach", p.reach}, {"edge", p.edge}};
  j["attention"] = {{"forward", m.attention.forward}, {"backward", m.attention.backward}, {"edge", m.attention.edge}};
  j["bandwidth"] = m.bandwidth;
  j["call_s"] = m.call_s, j["host_call_s"] = m.host_call_s;
  j["overlap"] = m.overlap;
  if (m.product_flops) j["product_flops"] = {m.product_flops->lowest, m.product_flops->highest};
  return j.dump(2) + "\n";
}

std::string network_beside(const Machine& machine) { return machine.name.starts_with("a100") ? "a100" : "h100"; }

}  // namespace sinter::plan
