#include "plan/peaks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
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
#include "train/precision.h"

namespace sinter::plan {
namespace {

namespace fs = std::filesystem;

// The best of as many repetitions as fit in the time: a ceiling is what the machine can do, not what it did on average.
template <class F> double best_ms(DeviceType device, double budget_ms, const F& work) {
  Event begin(device), end(device);
  work();  // libraries load, an algorithm is chosen
  synchronize(device);
  double best = 0, spent = 0;
  for (int i = 0; i < 3 || (spent < budget_ms && i < 200); ++i) {
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

double measure_product(DeviceType device, const std::string& dtype) {
  Precision p = precision_named(dtype);
  DType type = p.compute.value_or(p.master);
  bool cuda = device == DeviceType::cuda;
  // A GPU needs a large product to be busy. A CPU may do better on what fits its caches, and on a shared machine a short
  // product may find a quiet moment where a long one does not.
  std::vector<int64_t> sizes = {256, 512, 1024, 2048};
  if (cuda) sizes = {dtype == "fp32" ? 4096 : 8192};
  Released released{device};
  Tuned tuned;
  NoGrad off;
  Scoped math(context().math, p.math);
  auto rate = [&](int64_t n) {
    auto operand = [&](uint64_t stream) {  // random: zeros would draw less power and run faster
      Tensor t = empty({n, n}, DType::f32, device);
      fill_normal(t, 0, stream, 1);
      return cast(t, type);
    };
    Tensor a = operand(1), b = operand(2);
    Attrs attrs = Attrs::of(MatmulAttrs{.transpose_b = true});
    double ms = best_ms(device, cuda ? 300 : 200, [&] { dispatch(ops::matmul, attrs, a, b); });
    return 2 * double(n) * double(n) * double(n) / ms * 1e3;
  };
  try {
    double best = 0;
    for (int64_t n : sizes) best = std::max(best, rate(n));
    return best;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    return 0;
  }
}

double measure_copy(DeviceType device) {
  bool cuda = device == DeviceType::cuda;
  int64_t bytes = int64_t(cuda ? 1024 : 128) << 20;
  Released released{device};
  NoGrad off;
  try {
    Tensor from = zeros({bytes / 4}, DType::f32, device), to = zeros({bytes / 4}, DType::f32, device);
    double ms = best_ms(device, cuda ? 100 : 250, [&] { copy_into(to, from); });
    return 2 * double(bytes) / ms * 1e3;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    return 0;
  }
}

Json read_cache() {
  std::ifstream in(peaks_cache_path());
  Json j = Json::parse(in, nullptr, false);  // a broken cache is measured anew
  return j.is_object() ? j : Json::object();
}

std::string machine_key(DeviceType device) {
  DeviceInfo info = backend_of(device).info();
  if (device == DeviceType::cpu)
    // What is measured is part of the key: OpenBLAS's product, or ours, which changes with the program.
    return fmt::format("{}, {} threads, {}, {}, sinter {}", info.name, info.multiprocessors, cpu_isa_name(),
                       openblas_description(), build_info().commit);
  CudaVersions v = cuda_versions();
  return fmt::format("{}, driver {}, runtime {}, cublaslt {}", info.name, v.driver, v.runtime, v.cublaslt);
}

}  // namespace

std::string peaks_cache_path() {
  fs::path folder = cache_folder();
  return folder.empty() ? "" : (folder / "peaks.json").string();
}

Peaks::Peaks(DeviceType device) : device_(device), key_(machine_key(device)), known_(Json::object()) {
  Json cache = read_cache();
  if (cache.contains(key_) && cache[key_].is_object()) known_ = cache[key_];
  if (!known_.contains("product") || !known_["product"].is_object()) known_["product"] = Json::object();
}

double Peaks::product(const std::string& dtype) {
  if (!known_["product"].value(dtype, Json()).is_number()) remeasure_product(dtype);
  return known_["product"][dtype].get<double>();
}

double Peaks::copy() {
  if (!known_.value("copy", Json()).is_number()) remeasure_copy();
  return known_["copy"].get<double>();
}

void Peaks::remeasure_product(const std::string& dtype) {
  double rate = measure_product(device_, dtype);
  known_["product"][dtype] = rate;
  if (rate > 0) keep();  // there may be room next time
}

void Peaks::confirm_product(const std::string& dtype) {
  double before = product(dtype);
  remeasure_product(dtype);
  if (before <= product(dtype)) return;
  known_["product"][dtype] = before;  // the machine has shown that it can
  keep();
}

void Peaks::remeasure_copy() {
  double rate = measure_copy(device_);
  known_["copy"] = rate;
  if (rate > 0) keep();
}

void Peaks::keep() {
  known_["date"] = now_text();
  std::string path = peaks_cache_path();
  if (path.empty()) return;
  try {
    Json cache = read_cache();
    cache[key_] = known_;
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, cache.dump(2) + "\n", Durable::no);
  } catch (const std::exception&) {  // a cache that cannot be written costs a second next time, nothing else
  }
}

}  // namespace sinter::plan
