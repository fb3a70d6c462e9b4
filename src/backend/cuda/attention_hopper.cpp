// Host side of the Hopper attention kernels: what they can take, and tensor maps for TMA.
#include "backend/cuda/attention_hopper.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/runtime.h"
#include "core/attrs.h"

namespace sinter::cuda::hopper {
namespace {

// The one driver function these kernels need, found at run time: the binary must load on machines without a driver.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static auto found = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult state;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &state) != cudaSuccess)
      f = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(f);
  }();
  return found;
}

// Code for sm_90a runs on compute capability 9.0 alone, and only if this build has it.
bool can_run() {
#ifdef SINTER_SM90A
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
         minor == 0;
#else
  return false;
#endif
}

// TMA wants 16-byte addresses and strides. A dimension of one element may have any stride: it is never taken.
bool can_map(const TensorRef& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (t.dims[d] > 1 && (t.strides[d] * 2 % 16 != 0 || t.strides[d] <= 0 || t.strides[d] * 2 >= int64_t(1) << 40))
      return false;
  return true;
}

}  // namespace

CUtensorMap map_of(const TensorRef& t, int rows, int panel) {
  CUtensorMap map;
  cuuint64_t dims[4] = {cuuint64_t(t.dims[3]), cuuint64_t(t.dims[2]), cuuint64_t(t.dims[1]), cuuint64_t(t.dims[0])};
  cuuint64_t strides[3];
  for (int d = 0; d < 3; ++d)
    strides[d] = t.dims[2 - d] > 1 ? cuuint64_t(t.strides[2 - d]) * 2 : (cuuint64_t(t.dims[3]) * 2 + 15) / 16 * 16;
  cuuint32_t box[4] = {cuuint32_t(panel), cuuint32_t(rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  CUtensorMapSwizzle swizzle = panel == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                               : panel == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                             : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMapDataType type =
      t.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUresult r = encoder()(&map, type, 4, t.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) refuse("attention", "cuTensorMapEncodeTiled failed with error " + std::to_string(int(r)));
  return map;
}

bool takes(const KernelCall& call) {
  const TensorRef& q = call.in[0];
  if (!can_run() || !encoder() || !is_16bit(q.dtype) || q.dims[3] > 128) return false;
  if (!(call.attrs.as<AttentionAttrs>().scale > 0)) return false;  // the largest scaled score must be the largest score
  // Backward takes turns by key block, counted in 16 bits (attention_hopper_backward.cu).
  if (call.attrs.as<AttentionAttrs>().deterministic && call.in[1].dims[2] > int64_t(65535) * 128) return false;
  for (int d = 0; d < 3; ++d)
    if (q.dims[d] == 0 || call.in[1].dims[d] == 0 || q.dims[d] >= 1 << 30 || call.in[1].dims[d] >= 1 << 30)
      return false;
  for (int i = 0; i < call.n_in; ++i)
    if (call.in[i].rank == 4 && !can_map(call.in[i])) return false;
  for (int i = 0; i < call.n_out; ++i)
    if (call.out[i].rank == 4 && !can_map(call.out[i])) return false;
  return true;
}

}  // namespace sinter::cuda::hopper
