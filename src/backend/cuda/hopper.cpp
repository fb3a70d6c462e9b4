#include "backend/cuda/hopper.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/runtime.h"

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

}  // namespace

// Code for sm_90a runs on compute capability 9.0 alone, and only if this build has it.
bool can_run() {
#ifdef SINTER_SM90A
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
         minor == 0 && encoder();
#else
  return false;
#endif
}

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
  if (r != CUDA_SUCCESS) refuse("tensor map", "cuTensorMapEncodeTiled failed with error " + std::to_string(int(r)));
  return map;
}

}  // namespace sinter::cuda::hopper
