#include "backend/cuda/fused.h"

#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda/norm_groups.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/runtime.h"
#include "backend/device.h"
#include "backend/generated/fused_source.h"

namespace sinter::cuda {
namespace {

const FusedProgram& program_of(const KernelCall& call) { return *call.attrs.as<FusedAttrs>().program; }

// Never unloaded: captured graphs hold on to kernels.
cudaKernel_t load(const std::string& cubin, const std::string& name) {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  check_cuda(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
             "loading a generated kernel");
  check_cuda(cudaLibraryGetKernel(&kernel, library, name.c_str()), name.c_str());
  return kernel;
}

}  // namespace

void prepare_fused(std::span<const KernelCall* const> calls) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::string, cudaKernel_t>;  // by text
  std::lock_guard lock(mutex);
  std::vector<FusedText> all, fresh;
  std::vector<std::string> sources;
  for (const KernelCall* call : calls) {
    const FusedText& t = all.emplace_back(fused_text(*call));
    if (!kernels->emplace(t.text, nullptr).second) continue;
    sources.push_back(fused_prelude() + t.text);
    fresh.push_back(t);
  }
  try {
    std::vector<std::string> cubins =
        find_or_compile_cubins(sources, architecture_of(backend_of(DeviceType::cuda).info().compute_capability));
    for (size_t i = 0; i < fresh.size(); ++i) (*kernels)[fresh[i].text] = load(cubins[i], fresh[i].name);
  } catch (...) {
    std::erase_if(*kernels, [](const auto& k) { return !k.second; });
    throw;
  }
  for (size_t i = 0; i < calls.size(); ++i) program_of(*calls[i]).prepared = kernels->at(all[i].text);
}

void fused(const KernelCall& call) {
  const FusedProgram& program = program_of(call);
  cudaStream_t stream = stream_of(call);
  if (!program.prepared) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone) refuse("fused", "its kernel must be made before a stream is captured");
    const KernelCall* one[] = {&call};
    prepare_fused(one);
  }
  FusedLaunch l = fused_launch(call);
  void* args[] = {&l.args};
  if (l.grid > 0) check_cuda(cudaLaunchKernel(program.prepared, dim3(l.grid), dim3(l.block), args, 0, stream), "fused");
  for (int j = 0, sum = 0; j < call.n_out; ++j) {
    if (!is_column_sum(program, j)) continue;
    int d = int(program.row_length);
    add_groups(call.out[j].as<float>(), l.args.partial + int64_t(sum++) * l.grid * d, int(l.grid), d,
               call.accumulates(j), stream);
  }
}

}  // namespace sinter::cuda
