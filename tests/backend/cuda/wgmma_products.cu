#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/wgmma_products.h"

namespace sinter::cuda::hopper {
namespace {

template <class T, int D> __device__ void fill_tile(char* tile, int rows, const float* from) {
  for (int i = threadIdx.x; i < rows * Tile<D>::panels * Tile<D>::panel; i += 128) {
    int row = i / (Tile<D>::panels * Tile<D>::panel), column = i % (Tile<D>::panels * Tile<D>::panel);
    char* panel = tile + column / Tile<D>::panel * Tile<D>::panel_bytes(rows);
    *reinterpret_cast<T*>(panel + swizzled<Tile<D>::row_bytes>(row, column % Tile<D>::panel * 2)) =
        from_float<T>(column < D ? from[row * D + column] : 0.f);
  }
}

template <class T, Form F, int D, int N, int Panel>
__global__ void product(const float* a, const float* b, float* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char raw[];
  char *tile_a = raw, *tile_b = raw + 32768;
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = -1000;  // must be overwritten
  uint32_t fragment[32];
  if constexpr (F == Form::rows_rows) fill_tile<T, D>(tile_a, 64, a), fill_tile<T, D>(tile_b, N, b);
  if constexpr (F == Form::registers_across) {
    fill_tile<T, D>(tile_b, 128, b);
    for (int k = 0; k < 8; ++k)
      for (int j = 0; j < 4; ++j) {
        const float* x = a + (Fragment::row() + j % 2 * 8) * 128 + 16 * k + j / 2 * 8 + Fragment::column();
        fragment[4 * k + j] = pack_pair<T>(x[0], x[1]);
      }
  }
  if constexpr (F == Form::across_across) fill_tile<T, 64>(tile_a, 128, a), fill_tile<T, D>(tile_b, 128, b);
  fence_shared();
  __syncthreads();
  pin(d);
  fence_registers();
  if constexpr (F == Form::rows_rows) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, N>::template shared<false, false>(d, matrix<Tile<D>::row_bytes>(tile_a) + Tile<D>::along(k, 64),
                                                 matrix<Tile<D>::row_bytes>(tile_b) + Tile<D>::along(k, N), k > 0);
  } else if constexpr (F == Form::registers_across) {
    uint64_t m = matrix<Tile<D>::row_bytes>(tile_b, Tile<D>::panel_bytes(128));
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Wgmma<T, N>::template registers<true>(d, fragment + 4 * k, m + Tile<D>::across(k), k > 0);
  } else {
    uint64_t ma = matrix<128>(tile_a), mb = matrix<Tile<D>::row_bytes>(tile_b + Panel * Tile<D>::panel_bytes(128));
#pragma unroll
    for (int k = 0; k < 8; ++k)
      Wgmma<T, N>::template shared<true, true>(d, ma + Tile<64>::across(k), mb + Tile<D>::across(k), k > 0);
  }
  commit_products();
  wait_products<0>();
  pin(d);
  for (int i = 0; i < N / 2; ++i)
    out[(Fragment::row() + i / 2 % 2 * 8) * N + i / 4 * 8 + Fragment::column() + i % 2] = d[i];
#endif
}

using Kernel3 = void (*)(const float*, const float*, float*);
struct Entry {
  Product product;
  Kernel3 kernel;
};
template <class T, int D> void add_entries(std::vector<Entry>& all, DType type) {
  all.push_back({{Form::rows_rows, type, D, 64, 0}, product<T, Form::rows_rows, D, 64, 0>});
  all.push_back({{Form::rows_rows, type, D, 128, 0}, product<T, Form::rows_rows, D, 128, 0>});
  all.push_back({{Form::registers_across, type, D, D, 0}, product<T, Form::registers_across, D, D, 0>});
  constexpr int n = D < 64 ? D : 64;
  all.push_back({{Form::across_across, type, D, n, 0}, product<T, Form::across_across, D, n, 0>});
  if constexpr (D > 64)
    all.push_back({{Form::across_across, type, D, 64, 1}, product<T, Form::across_across, D, 64, 1>});
}
const std::vector<Entry>& entries() {
  static std::vector<Entry> all = [] {
    std::vector<Entry> e;
    auto add = [&]<class T>(DType type) {
      add_entries<T, 16>(e, type), add_entries<T, 32>(e, type), add_entries<T, 64>(e, type);
      add_entries<T, 80>(e, type), add_entries<T, 96>(e, type), add_entries<T, 128>(e, type);
    };
    add.template operator()<bf16_t>(DType::bf16);
    add.template operator()<f16_t>(DType::f16);
    return e;
  }();
  return all;
}

}  // namespace

bool has_wgmma() {
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
         minor == 0;
}

const std::vector<Product>& products() {
  static std::vector<Product> all = [] {
    std::vector<Product> p;
    for (const Entry& e : entries()) p.push_back(e.product);
    return p;
  }();
  return all;
}

std::vector<float> run(const Product& p, const std::vector<float>& a, const std::vector<float>& b) {
  for (const Entry& e : entries()) {
    const Product& x = e.product;
    if (x.form != p.form || x.type != p.type || x.d != p.d || x.n != p.n || x.panel != p.panel) continue;
    std::vector<float> out(size_t(64 * p.n));
    float *da, *db, *dout;
    check_cuda(cudaMalloc(&da, a.size() * 4), "cudaMalloc");
    check_cuda(cudaMalloc(&db, b.size() * 4), "cudaMalloc");
    check_cuda(cudaMalloc(&dout, out.size() * 4), "cudaMalloc");
    check_cuda(cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaMemcpy(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaFuncSetAttribute(e.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
               "cudaFuncSetAttribute");
    e.kernel<<<1, 128, 65536>>>(da, db, dout);
    check_cuda(cudaGetLastError(), "product");
    check_cuda(cudaMemcpy(out.data(), dout, out.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    cudaFree(da), cudaFree(db), cudaFree(dout);
    return out;
  }
  refuse("product", "no such form");
}

}  // namespace sinter::cuda::hopper
