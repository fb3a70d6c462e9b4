#include "plan/peaks.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "core/error.h"
#include "ops/dispatch.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "system/build_info.h"
#include "system/cache_files.h"
#include "system/files.h"
#include "system/host.h"
#include "system/json.h"
#include "train/precision.h"

namespace sinter::plan {
namespace {

namespace fs = std::filesystem;

constexpr const char* copy_name = "copy";
std::string product_name(const std::string& dtype) { return "product " + dtype; }

// On a shared machine a whole burst may fall into a busy moment, so there are several, one after the other.
constexpr int samples_per_peak = 5;

// The best of as many repetitions as fit in the time: a ceiling is what the machine can do, not what it did on average.
template <class F> double best_ms(DeviceType device, double budget_ms, const F& work) {
  Event begin(device), end(device);
  double best = 0, spent = 0;
  for (int i = 0; i == 0 || (spent < budget_ms && i < 200); ++i) {
    begin.record();
    work();
    end.record();
    end.wait();
    double ms = end.ms_since(begin);
    best = i == 0 ? ms : std::min(best, ms);
    spent += ms;
  }
  return best;
}

struct Work {
  double amount;  // FLOPs, bytes
  std::function<void()> run;
};

// A sample is the best rate among the works; `budget_ms` is for one. No samples if there is no room for the works.
Peak measured(DeviceType device, double budget_ms, const std::function<std::vector<Work>()>& prepare) {
  Peak p;
  p.date = now_text();
  try {
    std::vector<Work> works = prepare();
    for (const Work& w : works) w.run();  // libraries load, an algorithm is chosen
    synchronize(device);
    for (int i = 0; i < samples_per_peak; ++i) {
      double rate = 0;
      for (const Work& w : works)
        rate = std::max(rate, w.amount / best_ms(device, budget_ms / double(works.size()), w.run) * 1e3);
      p.best = std::max(p.best, rate);
      p.lowest = i == 0 ? rate : std::min(p.lowest, rate);
    }
    p.samples = samples_per_peak;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    return {};
  }
  return p;
}

// Frees what a measurement took, so that it does not show in the one that follows.
struct Released {
  DeviceType device;
  ~Released() {
    try {
      allocator_of(device).release_cached();
    } catch (const Error&) {  // a device that failed has already said so
    }
  }
};

// A ceiling is of the best algorithm, whatever --no-tune says of the model's products.
struct Tuned {
  bool before = product_tuning_is_on();
  Tuned() { set_product_tuning(true); }
  ~Tuned() { set_product_tuning(before); }
};

Peak measure_product(DeviceType device, const std::string& dtype) {
  Precision p = precision_named(dtype);
  DType type = p.compute.value_or(p.master);
  bool cuda = device == DeviceType::cuda;
  // A GPU needs a large product to be busy. A CPU may do better on what fits its caches, and on a shared machine a
  // short product may find a quiet moment where a long one does not.
  std::vector<int64_t> sizes = {256, 512, 1024, 2048};
  if (cuda) sizes = {dtype == "fp32" ? 4096 : 8192};
  Released released{device};
  Tuned tuned;
  NoGrad off;
  Scoped math(context().math, p.math);
  return measured(device, cuda ? 60 : 100, [&] {
    std::vector<Work> works;
    for (int64_t n : sizes) {
      auto operand = [&](uint64_t stream) {  // random: zeros would draw less power and run faster
        Tensor t = empty({n, n}, DType::f32, device);
        fill_normal(t, 0, stream, 1);
        return cast(t, type);
      };
      Attrs attrs = Attrs::of(MatmulAttrs{.transpose_b = true});
      works.push_back({2 * double(n) * double(n) * double(n),
                       [a = operand(1), b = operand(2), attrs] { dispatch(ops::matmul, attrs, a, b); }});
    }
    return works;
  });
}

Peak measure_copy(DeviceType device) {
  bool cuda = device == DeviceType::cuda;
  int64_t bytes = int64_t(cuda ? 1024 : 128) << 20;
  Released released{device};
  NoGrad off;
  return measured(device, cuda ? 20 : 60, [&] {
    Tensor from = zeros({bytes / 4}, DType::f32, device), to = zeros({bytes / 4}, DType::f32, device);
    return std::vector<Work>{{2 * double(bytes), [from, to] { copy_into(to, from); }}};
  });
}

// Note [Doubted peaks]: every "× floor" rests on these numbers, and the file may hold anything: what an older sinter
// wrote, what a hand changed, half of it. An entry is believed if it has all its fields and says something that a
// machine could do; otherwise it is measured again, which takes a second.
// What was measured may be wrong too. A neighbour that computes for minutes halves all samples of one process alike, so
// later processes add some of their own, until three have. The best of all counts, unless nothing near it is seen
// again.
constexpr int settled_samples = 3 * samples_per_peak, settled_for_s = 60;
constexpr double near = 4;

bool is_settled(const Peak& p) { return p.samples >= settled_samples || p.date > now_text(settled_for_s); }

Peak with_more(const Peak& before, Peak now) {
  if (now.samples == 0) return before;  // no room this time
  if (before.best > near * now.best) return now;
  if (before.samples > 0) now.lowest = std::min(before.lowest, now.lowest);
  now.best = std::max(before.best, now.best);  // the machine has shown that it can
  now.samples += before.samples;
  return now;
}

// Some tenfold beyond the slowest and the fastest machines there are.
struct Bounds {
  double low, high;
};
Bounds bounds_of(DeviceType device, const std::string& name) {
  bool cuda = device == DeviceType::cuda;
  if (name == copy_name) return cuda ? Bounds{1e9, 1e14} : Bounds{1e8, 1e13};
  return cuda ? Bounds{1e10, 1e17} : Bounds{1e8, 1e15};
}

std::optional<Peak> believed(DeviceType device, const std::string& name, const Json& j) {
  auto number = [&](const char* field) { return j.is_object() && j.contains(field) && j[field].is_number(); };
  if (!number("best") || !number("lowest") || !number("samples")) return {};
  if (!j["samples"].is_number_integer() || !j.contains("date") || !j["date"].is_string()) return {};
  Peak p{j["best"], j["lowest"], j["samples"], j["date"], true};
  Bounds bounds = bounds_of(device, name);
  bool plausible = p.samples >= samples_per_peak && bounds.low <= p.lowest && p.lowest <= p.best &&
                   p.best <= bounds.high && p.date.size() == now_text().size() && p.date <= now_text();
  return plausible ? std::optional(p) : std::nullopt;
}

// {"format": 2, "machines": {machine: {peak: {"best": …, "lowest": …, "samples": …, "date": …}}}}.
constexpr int cache_format = 2;
Json read_cache() {
  Json empty = {{"format", cache_format}, {"machines", Json::object()}};
  try {
    Json j = parse_json_file(peaks_cache_path());
    bool ours = j.is_object() && j.value("format", Json()) == cache_format && j.value("machines", Json()).is_object();
    return ours ? j : empty;
  } catch (const Error&) {  // there is none, or it is damaged: it is measured anew
    return empty;
  }
}

// Each build, thread count and driver makes an entry, so the oldest go.
constexpr size_t most_machines = 16;
std::string date_of(const Json& machine) {
  std::string newest;
  if (machine.is_object())
    for (const Json& peak : machine)
      if (peak.is_object() && peak.contains("date") && peak["date"].is_string())
        newest = std::max(newest, peak["date"].get<std::string>());
  return newest;
}
void prune(Json& machines) {
  while (machines.size() > most_machines) {
    auto oldest = machines.begin();
    for (auto it = machines.begin(); it != machines.end(); ++it)
      if (date_of(*it) < date_of(*oldest)) oldest = it;
    machines.erase(oldest);
  }
}

std::string machine_key(DeviceType device) {
  DeviceInfo info = backend_of(device).info();
  // What is measured is part of the key: OpenBLAS's product, or ours, which changes with the program.
  if (device == DeviceType::cpu)
    return fmt::format("{}, {} threads, {}, {}, sinter {}", info.name, info.multiprocessors, cpu_isa_name(),
                       openblas_description(), build_info().commit);
  CudaVersions v = cuda_versions();
  return fmt::format("{}, driver {}, runtime {}, cublaslt {}, sinter {}", info.name, v.driver, v.runtime, v.cublaslt,
                     build_info().commit);
}

}  // namespace

std::string peaks_cache_path() {
  fs::path folder = cache_folder();
  return folder.empty() ? "" : (folder / "peaks.json").string();
}

Peaks::Peaks(DeviceType device) : device_(device), machine_(machine_key(device)) {
  Json cache = read_cache(), peaks = cache["machines"].value(machine_, Json());
  if (!peaks.is_object()) return;
  for (const auto& [name, value] : peaks.items())
    if (std::optional<Peak> p = believed(device, name, value)) known_[name] = *p;
}

const Peak& Peaks::peak(const std::string& name, const std::function<Peak()>& measure) {
  if (!looked_at_.insert(name).second) return known_[name];
  auto it = known_.find(name);
  if (it == known_.end()) keep(name, measure());
  else if (!is_settled(it->second)) keep(name, with_more(it->second, measure()));
  return known_[name];
}

const Peak& Peaks::product_peak(const std::string& dtype) {
  return peak(product_name(dtype), [&] { return measure_product(device_, dtype); });
}
std::optional<double> Peaks::known_product(const std::string& dtype) const {
  auto known = known_.find(product_name(dtype));
  if (known == known_.end() || known->second.best <= 0) return {};
  return known->second.best;
}
const Peak& Peaks::copy_peak() {
  return peak(copy_name, [&] { return measure_copy(device_); });
}

void Peaks::remeasure_product(const std::string& dtype) { keep(product_name(dtype), measure_product(device_, dtype)); }
void Peaks::remeasure_copy() { keep(copy_name, measure_copy(device_)); }

void Peaks::confirm_product(const std::string& dtype) {
  keep(product_name(dtype), with_more(product_peak(dtype), measure_product(device_, dtype)));
}

void Peaks::keep(const std::string& name, const Peak& peak) {
  known_[name] = peak;
  std::string path = peaks_cache_path();
  if (path.empty() || peak.samples == 0) return;  // there may be room next time
  try {
    Json cache = read_cache();
    Json& machines = cache["machines"];
    if (!machines[machine_].is_object()) machines[machine_] = Json::object();
    machines[machine_][name] = {
        {"best", peak.best}, {"lowest", peak.lowest}, {"samples", peak.samples}, {"date", peak.date}};
    prune(machines);
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, cache.dump(2) + "\n", Durable::no);
  } catch (const std::exception&) {  // a cache that cannot be written costs a second next time, nothing else
  }
}

}  // namespace sinter::plan
