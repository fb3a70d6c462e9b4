#include "backend/cuda/nvrtc.h"

#include <algorithm>
#include <atomic>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <thread>

#include "core/check.h"
#include "system/cache_files.h"

namespace sinter::cuda {
namespace {

struct Nvrtc {
#define SINTER_NVRTC_FUNCTIONS(F) \
  F(nvrtcVersion)                 \
  F(nvrtcCreateProgram)           \
  F(nvrtcDestroyProgram)          \
  F(nvrtcCompileProgram)          \
  F(nvrtcGetProgramLogSize)       \
  F(nvrtcGetProgramLog)           \
  F(nvrtcGetCUBINSize)            \
  F(nvrtcGetCUBIN)                \
  F(nvrtcGetErrorString)
#define DECLARE(name) decltype(&::name) name = nullptr;
  SINTER_NVRTC_FUNCTIONS(DECLARE)
#undef DECLARE
  std::string missing;
  int version = 0;

  Nvrtc() {
    void* library = nullptr;
    std::string versioned = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    for (const char* folder : {"", SINTER_NVRTC_FOLDER "/", "/usr/local/cuda/lib64/"})
      if (!library) library = dlopen((folder + versioned).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) missing = versioned + " was not found";
#define LOAD(name)                                                                    \
  if (library && !((name) = reinterpret_cast<decltype(name)>(dlsym(library, #name)))) \
    missing = versioned + " lacks " #name;
    SINTER_NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    int major = 0, minor = 0;
    if (missing.empty() && nvrtcVersion(&major, &minor) == NVRTC_SUCCESS) version = 100 * major + minor;
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc loaded;
  check(
      loaded.missing.empty(),
      "generated kernels: {} (part of the CUDA toolkit: cuda-nvrtc); install it, or leave out the passes fuse and rows",
      loaded.missing);
  return loaded;
}

const std::vector<const char*>& options() {
  static const std::vector<const char*> all = {"--std=c++17"};
  return all;
}

void must(const Nvrtc& n, nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS) fail_with(ErrorKind::other, "NVRTC: {} failed: {}", what, n.nvrtcGetErrorString(result));
}

// All that the machine code may depend on.
std::string key_of(const std::string& source, const std::string& architecture) {
  static const int driver = [] {
    int v = 0;
    return cudaDriverGetVersion(&v) == cudaSuccess ? v : 0;
  }();
  std::string key = fmt::format("{}\nNVRTC {}, driver {}", architecture, nvrtc().version, driver);
  for (const char* o : options()) key += std::string("\n") + o;
  return key + "\n" + source;
}

}  // namespace

std::string architecture_of(int compute_capability) {
  return fmt::format("sm_{}{}", compute_capability, compute_capability >= 90 ? "a" : "");
}

std::string compile_cubin(const std::string& source, const std::string& architecture) {
  const Nvrtc& n = nvrtc();
  struct Program {
    const Nvrtc& n;
    nvrtcProgram p = nullptr;
    ~Program() { n.nvrtcDestroyProgram(&p); }
  } program{n};
  must(n, n.nvrtcCreateProgram(&program.p, source.c_str(), "fused.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> all = options();
  all.push_back(target.c_str());
  if (nvrtcResult r = n.nvrtcCompileProgram(program.p, int(all.size()), all.data()); r != NVRTC_SUCCESS) {
    size_t size = 0;
    n.nvrtcGetProgramLogSize(program.p, &size);
    std::string log(size, '\0');
    n.nvrtcGetProgramLog(program.p, log.data());
    fail_with(ErrorKind::other, "NVRTC for {}: {}\n{}", architecture, n.nvrtcGetErrorString(r), log.c_str());
  }
  size_t size = 0;
  must(n, n.nvrtcGetCUBINSize(program.p, &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  must(n, n.nvrtcGetCUBIN(program.p, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

std::vector<std::string> find_or_compile_cubins(const std::vector<std::string>& sources,
                                                const std::string& architecture) {
  std::filesystem::path folder = cache_folder();
  CacheFiles cache(folder.empty() ? folder : folder / "kernels", "kernel");
  std::vector<std::string> cubins(sources.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (auto found = cache.read(key_of(sources[i], architecture))) cubins[i] = std::move(*found);
    else missing.push_back(i);
  }
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
  auto work = [&] {
    for (size_t k; (k = next++) < missing.size() && !failed;) try {
        size_t i = missing[k];
        cubins[i] = compile_cubin(sources[i], architecture);
        cache.write(key_of(sources[i], architecture), cubins[i]);
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
  };
  size_t workers = std::min<size_t>(missing.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t t = 1; t < workers; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  return cubins;
}

}  // namespace sinter::cuda
