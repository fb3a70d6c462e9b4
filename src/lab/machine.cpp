#include "lab/machine.h"

#include <fmt/format.h>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/device.h"
#include "system/build_info.h"
#include "system/host.h"
#include "system/nvml.h"
#include "system/units.h"

namespace sinter::lab {

std::string cuda_version_text(int v) { return v ? fmt::format("{}.{}", v / 1000, v % 1000 / 10) : "none"; }

Json machine_block(DeviceType device) {
  DeviceInfo cpu = cpu_backend().info();
  Json m = {{"cpu", cpu.name},
            {"threads", cpu.multiprocessors},
            {"isa", cpu_isa_name()},
            {"cpu_mhz", cpu_mhz()},
            {"memory_bytes", cpu.memory_bytes},
            {"os", os_text()},
            {"openblas", openblas_description()},
            {"gpu", nullptr},
            {"sinter",
             {{"version", build_info().version},
              {"commit", build_info().commit},
              {"build", build_info().type},
              {"compiler", build_info().compiler},
              {"cuda", build_info().cuda.empty() ? Json() : Json(build_info().cuda)}}},
            {"date", now_text()}};
  if (device != DeviceType::cuda) return m;
  DeviceInfo gpu = backend_of(DeviceType::cuda).info();
  CudaVersions v = cuda_versions();
  m["gpu"] = {{"name", gpu.name},
              {"uuid", gpu.uuid},
              {"ordinal", gpu.ordinal},
              {"memory_bytes", gpu.memory_bytes},
              {"compute_capability", fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10)},
              {"multiprocessors", gpu.multiprocessors},
              {"driver", nvml_driver_version().value_or("unknown")},
              {"driver_cuda", cuda_version_text(v.driver)},
              {"runtime_cuda", cuda_version_text(v.runtime)},
              {"cublaslt", v.cublaslt},
              {"clocks", gpu_clocks(gpu.uuid)}};
  return m;
}

namespace {

// "OpenBLAS 0.3.21 NO_LAPACKE …, running as Zen" in few words; the record has all of them.
std::string library_text(const std::string& openblas) {
  size_t version = openblas.find(' ', openblas.find(' ') + 1), running = openblas.find(", running as");
  return openblas.substr(0, version) + (running == std::string::npos ? "" : openblas.substr(running));
}

}  // namespace

std::vector<std::string> machine_lines(const Json& m) {
  std::vector<std::string> lines;
  const Json& s = m.at("sinter");
  lines.push_back(fmt::format("sinter {} ({}, {} build, {}), {}", s.value("version", "?"), s.value("commit", "?"),
                              s.value("build", "?"), s.value("compiler", "?"), m.value("date", "")));
  double mhz = m.value("cpu_mhz", 0.0);
  lines.push_back(fmt::format("CPU: {}, {} threads, {}, {}{}; {}", m.value("cpu", "?"), m.value("threads", 0),
                              m.value("isa", "?"), mhz > 0 ? fmt::format("{:.0f} MHz, ", mhz) : "",
                              bytes_text(m.value("memory_bytes", 0.0)), library_text(m.value("openblas", ""))));
  if (m.contains("gpu") && m["gpu"].is_object()) {
    const Json& g = m["gpu"];
    lines.push_back(fmt::format("GPU: {}, {}, compute capability {}; driver {} (CUDA {}), runtime CUDA {}, cuBLASLt {}",
                                g.value("name", "?"), bytes_text(g.value("memory_bytes", 0.0)),
                                g.value("compute_capability", "?"), g.value("driver", "?"), g.value("driver_cuda", "?"),
                                g.value("runtime_cuda", "?"), g.value("cublaslt", 0)));
  }
  return lines;
}

}  // namespace sinter::lab
