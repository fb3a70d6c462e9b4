// A constant into any tensor. Speed of light: one write.
#include <cstring>

#include "backend/cuda/device_math.cuh"
#include "backend/pointwise_layout.h"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;

struct FillArgs {
  char* data;
  int64_t count;
  int64_t dims[max_rank], strides[max_rank];  // bytes
  int rank, size;
  uint64_t bits;
};

__global__ void __launch_bounds__(threads) fill_strided(const __grid_constant__ FillArgs a) {
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x, offset = 0;
  if (i >= a.count) return;
  for (int d = a.rank - 1; d >= 0; --d) {
    int64_t q = d > 0 ? i / a.dims[d] : 0;
    offset += (i - q * a.dims[d]) * a.strides[d];
    i = q;
  }
  char* p = a.data + offset;
  switch (a.size) {
    case 8: *reinterpret_cast<uint64_t*>(p) = a.bits; break;
    case 4: *reinterpret_cast<uint32_t*>(p) = uint32_t(a.bits); break;
    case 2: *reinterpret_cast<uint16_t*>(p) = uint16_t(a.bits); break;
    default: *reinterpret_cast<uint8_t*>(p) = uint8_t(a.bits);
  }
}

// Whole 16-byte pieces; `bits` holds the value repeated to 8 bytes.
__global__ void __launch_bounds__(threads) fill_flat(uint4* data, int64_t pieces, uint64_t bits) {
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < pieces) data[i] = {uint32_t(bits), uint32_t(bits >> 32), uint32_t(bits), uint32_t(bits >> 32)};
}

// The value's bits, repeated to fill 8 bytes. 16-bit floats are rounded here as the device would.
uint64_t bits_of(double value, DType t) {
  auto bits = [](auto x) {
    uint64_t u = 0;
    std::memcpy(&u, &x, sizeof x);
    return u;
  };
  switch (t) {
    case DType::f64: return bits(value);
    case DType::i64: return bits(int64_t(value));
    case DType::f32: return bits(float(value)) * 0x100000001u;
    case DType::i32: return bits(int32_t(value)) * 0x100000001u;
    case DType::bf16: return bits(__float2bfloat16_rn(float(value))) * 0x1000100010001u;
    case DType::f16: return bits(__float2half_rn(float(value))) * 0x1000100010001u;
    case DType::u8: return bits(uint8_t(value)) * 0x101010101010101u;
    case DType::boolean: return uint64_t(value != 0) * 0x101010101010101u;
  }
  return 0;
}

}  // namespace

void fill(const KernelCall& call) {
  const TensorRef& out = call.out[0];
  PointwiseLayout l = pointwise_layout(out, nullptr, 0);
  if (l.numel == 0) return;
  uint64_t bits = bits_of(call.attrs.as<FillAttrs>().value, out.dtype);
  int64_t size = size_of(out.dtype), bytes = l.numel * size;
  if (l.flat() && bits == 0)
    return check_cuda(cudaMemsetAsync(out.data, 0, size_t(bytes), stream_of(call)), "cudaMemsetAsync");
  if (l.flat() && bytes % 16 == 0 && aligned(out.data, 16))
    return launch("fill", fill_flat, grid_of("fill", ceil_div(bytes / 16, threads)), threads, stream_of(call),
                  out.as<uint4>(), bytes / 16, bits);
  FillArgs a{out.as<char>(), l.numel, {}, {}, l.rank, int(size), bits};
  for (int d = 0; d < l.rank; ++d) a.dims[d] = l.dims[d], a.strides[d] = l.strides[0][d] * size;
  launch("fill", fill_strided, grid_of("fill", ceil_div(l.numel, threads)), threads, stream_of(call), a);
}

cudaError_t probe_kernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, fill_strided);
}

}  // namespace sinter::cuda
