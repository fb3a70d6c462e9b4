#include "lab/doctor/doctor.h"

#include <fmt/format.h>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/device.h"
#include "core/check.h"
#include "lab/driver.h"
#include "lab/machine.h"
#include "lab/peer_script.h"
#include "plan/gpus.h"
#include "plan/peaks.h"
#include "system/build_info.h"
#include "system/nvml.h"
#include "system/process.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

Json found(const std::string& item, const std::string& version) {
  return {{"section", "library"}, {"item", item}, {"status", "ok"}, {"found", version}, {"consequence", ""}};
}
Json missing(const std::string& item, const std::string& why, const std::string& consequence) {
  return {{"section", "library"}, {"item", item}, {"status", "missing"}, {"found", why}, {"consequence", consequence}};
}

// A runtime needs a driver of its own major version or a later one.
Json driver_row(const CudaVersions& v) {
  std::string text = fmt::format("driver {} (CUDA {}), runtime CUDA {}", nvml_driver_version().value_or("?"),
                                 cuda_version_text(v.driver), cuda_version_text(v.runtime));
  if (v.driver / 1000 >= v.runtime / 1000) return found("CUDA driver", text);
  return missing(
      "CUDA driver", text,
      fmt::format("too old for this build: install a driver for CUDA {} or later, or build with a CUDA {} toolkit",
                  cuda_version_text(v.runtime), cuda_version_text(v.driver)));
}

Json library_rows(const DoctorOptions& options) {
  Json rows = Json::array();
  rows.push_back(found("OpenBLAS", openblas_description()));
  rows.push_back(found("CPU products", cpu_products_description()));
  if (openblas_lags())
    rows.back()["consequence"] = "fp64 products are slow; a newer OpenBLAS, or OPENBLAS_CORETYPE=Haswell, would help";
  bool built = !build_info().cuda.empty();
  if (built) rows.push_back(found("CUDA toolkit (build)", build_info().cuda));
  else
    rows.push_back(missing("CUDA toolkit (build)", build_info().cuda_reason,
                           "no --device cuda; install the CUDA toolkit and build again"));
  if (built) {
    CudaVersions v = cuda_versions();
    if (v.driver == 0) rows.push_back(missing("CUDA driver", "none", "no --device cuda; install NVIDIA's driver"));
    else rows.push_back(driver_row(v));
    if (v.cublaslt) rows.push_back(found("cuBLASLt", std::to_string(v.cublaslt)));
    else rows.push_back(missing("cuBLASLt", cuda_missing_reason(), "no products on the GPU"));
  }
  if (auto v = nvml_driver_version()) rows.push_back(found("NVML", *v));
  else rows.push_back(missing("NVML", "libnvidia-ml.so.1 not found", "no clocks, power or throttling in records"));
  if (auto v = torch_version(options.python)) rows.push_back(found("PyTorch (" + options.python + ")", *v));
  else
    rows.push_back(
        missing("PyTorch", options.python + " cannot import torch", "no --peer; name another python with --python"));
  return rows;
}

Json device_row(DeviceType device) {
  DeviceInfo i = backend_of(device).info();
  bool cuda = device == DeviceType::cuda;
  std::string detail = cuda ? fmt::format("compute capability {}.{}, {} multiprocessors", i.compute_capability / 10,
                                          i.compute_capability % 10, i.multiprocessors)
                            : fmt::format("{} threads, {}", i.multiprocessors, cpu_isa_name());
  return {{"section", "device"},
          {"item", name_of(device)},
          {"status", "ok"},
          {"name", i.name},
          {"detail", detail},
          {"memory_bytes", i.memory_bytes},
          {"free_bytes", backend_of(device).free_bytes()}};
}

Json peak_rows(DeviceType device, bool remeasure, Progress& progress) {
  Json rows = Json::array();
  plan::Peaks peaks(device);
  bool cuda = device == DeviceType::cuda;
  std::string name = backend_of(device).info().name;
  int capability = backend_of(device).info().compute_capability;
  std::vector<std::string> types = !cuda              ? std::vector<std::string>{"fp32"}
                                   : capability >= 80 ? std::vector<std::string>{"fp32", "tf32", "bf16", "fp16"}
                                                      : std::vector<std::string>{"fp32", "fp16"};
  auto row = [&](const std::string& what, const plan::Peak& peak, std::optional<double> sheet, const char* unit) {
    rows.push_back({{"section", "peak"},
                    {"device", name_of(device)},
                    {"item", what},
                    {"status", peak.best > 0 ? "ok" : "missing"},
                    {"measured", peak.best},
                    {"lowest", peak.lowest},
                    {"samples", peak.samples},
                    {"date", peak.date},
                    {"datasheet", sheet ? Json(*sheet) : Json()},
                    {"unit", unit},
                    {"cached", peak.cached}});
  };
  for (const std::string& type : types) {
    progress.now(fmt::format("measuring {} products on {}", type, name_of(device)));
    if (remeasure) peaks.remeasure_product(type);
    row("product " + type, peaks.product_peak(type), cuda ? plan::datasheet_product(name, type) : std::nullopt,
        "FLOP/s");
  }
  progress.now(fmt::format("measuring copies on {}", name_of(device)));
  if (remeasure) peaks.remeasure_copy();
  row("copy (read + write)", peaks.copy_peak(), cuda ? plan::datasheet_bandwidth(name) : std::nullopt, "B/s");
  return rows;
}

// What a collective costs before its bytes do: two processes hand the GPU over to each other twice.
Json hand_over_row(Progress& progress) {
  progress.now("two ranks on the GPU");
  const char* item = "ranks sharing a GPU";
  std::string gpu = fmt::format("cuda:{}", backend_of(DeviceType::cuda).info().ordinal);
  ProcessResult child = run_process({own_executable(), "bench", "allreduce", "--device", gpu, "--ranks", "2", "--mb",
                                     "0.001", "--backend", "ipc", "--steps", "200", "--json", "-"},
                                    {.quiet = true, .until_interrupted = true});
  Json record = Json::parse(child.output, nullptr, false);
  if (!record.is_object() || record.value("results", Json::array()).empty() ||
      record["results"][0].value("status", "") != "ok")
    return missing(item, "two of them cannot see each other's memory", "use --backend nccl or shm");
  double us = 1e3 * record["results"][0].at("median_ms").get<double>();
  return found(item, fmt::format("ipc; 1 kB of two is summed in {} µs, in which they wait for each other twice",
                                 significant(us, 3)));
}

}  // namespace

int doctor(const DoctorOptions& options, const OutputOptions& output) {
  bool cuda = cuda_backend() != nullptr;
  Experiment e{"doctor",
               {{"remeasure", options.remeasure}, {"peaks_cache", plan::peaks_cache_path()}},
               cuda ? DeviceType::cuda : DeviceType::cpu};
  auto add = [&](const char* text, const std::function<Json(Progress&)>& rows) {
    e.groups.emplace_back().cases.push_back(simple_case(text, rows));
  };
  add("devices", [&](Progress&) {
    Json rows = Json::array({device_row(DeviceType::cpu)});
    rows.push_back(cuda ? device_row(DeviceType::cuda)
                        : Json({{"section", "device"},
                                {"item", "cuda"},
                                {"status", "missing"},
                                {"name", "none"},
                                {"detail", cuda_missing_reason()}}));
    return rows;
  });
  add("looking for libraries", [&](Progress&) { return library_rows(options); });
  if (cuda) add("ranks on the GPU", [&](Progress& progress) { return Json::array({hand_over_row(progress)}); });
  for (DeviceType device : cuda ? std::vector{DeviceType::cpu, DeviceType::cuda} : std::vector{DeviceType::cpu})
    add("peaks", [&, device](Progress& progress) { return peak_rows(device, options.remeasure, progress); });
  return run(e, output);
}

View doctor_view(const Json& record) {
  Table devices, libraries, peaks;
  devices.title = "Devices";
  devices.columns = {
      {"device", true}, {"name", true, 0, Column::wrap}, {"memory"}, {"free"}, {"", true, 0, Column::wrap}};
  libraries.title = "Libraries";
  libraries.columns = {{"library", true, 0, Column::wrap},
                       {"status", true},
                       {"found", true, 0, Column::wrap},
                       {"what that means", true, 0, Column::wrap}};
  peaks.title = "Measured peaks";
  peaks.columns = {{"device", true},
                   {"what", true},
                   {"measured"},
                   {"datasheet", false, 2},
                   {"reached", false, 1},
                   {"samples", true, 0, Column::wrap},
                   {"", true}};
  for (const Json& r : record.at("results")) {
    if (r.at("section") == "device") {
      bool has = r.contains("memory_bytes");
      devices.rows.push_back({r.at("item"), r.at("name"), has ? bytes_text(r.at("memory_bytes")) : "–",
                              has ? bytes_text(r.at("free_bytes")) : "–", r.at("detail")});
    } else if (r.at("section") == "library") {
      libraries.rows.push_back({r.at("item"), r.at("status"), r.at("found"), r.at("consequence")});
    } else {
      double v = r.at("measured"), sheet = r.at("datasheet").is_number() ? r.at("datasheet").get<double>() : 0;
      bool copy = r.at("unit") == "B/s";
      auto rate = [&](double x) { return significant(x / (copy ? 1e9 : 1e12), 3); };
      auto show = [&](double x) { return rate(x) + (copy ? " · 10⁹ B/s" : " TFLOP/s"); };
      // Older records have one number.
      std::string samples = r.value("samples", 0) > 0
                                ? fmt::format("best of {}, {} to {}, {}", r.at("samples").get<int>(),
                                              rate(r.at("lowest")), rate(v), r.value("date", "").substr(0, 10))
                                : "";
      peaks.rows.push_back({r.at("device"), r.at("item"), v > 0 ? show(v) : "no room to measure",
                            sheet > 0 ? show(sheet) : "–", sheet > 0 ? percent_text(v / sheet) : "–", samples,
                            r.at("cached").get<bool>() ? "cached" : ""});
    }
  }
  std::string cache = record.at("config").value("peaks_cache", "");
  if (!cache.empty()) peaks.notes = {"Kept in " + cache + "; --remeasure measures again."};
  return {machine_lines(record.at("machine")), {devices, libraries, peaks}, {}};
}

}  // namespace sinter::lab
