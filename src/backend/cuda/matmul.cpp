// GEMMs through cuBLASLt. Speed of light: 2·m·n·k operations at the tensor cores' rate.
//
// Note [Choosing a product algorithm]: cuBLASLt's first guess is often 5 to 20% from its best algorithm. The first time
// a problem is seen, its best guesses are timed on the real operands and the fastest is kept, in memory and on
// disk (matmul_cache.h), unless set_product_tuning() says not to (--no-tune). The choice is a fact about the problem
// alone (types, sizes, strides, alignment), so a replayed step runs the same algorithm as the eager one. While a stream
// is being captured nothing can be timed: the first guess is taken, and stays for this process. Partial sums of split
// GEMMs are kept in fp32 (the reduction mask), never in the 16-bit output type.
#include <atomic>
#include <cstring>
#include <cublasLt.h>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/matmul_cache.h"
#include "backend/cuda/runtime.h"
#include "backend/device.h"
#include "backend/matmul_problem.h"
#include "core/clock.h"

namespace sinter {

namespace cuda {
namespace {

std::atomic<bool> tuning = true;
constexpr int most_candidates = 32;
constexpr float long_ms = 2;  // longer GEMMs are timed once
constexpr float clearly_faster = 0.97f;

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::memory : ErrorKind::other,
       std::string("cuBLASLt: ") + what + " failed: " + cublasLtGetStatusString(status));
}

struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  int64_t logged = -1;  // in this round of the log
};

struct Library {
  cublasLtHandle_t handle = nullptr;
  std::mutex lock;  // over the two maps below
  std::unordered_map<MatmulKey, Plan, MatmulKeyHash> plans;
  MatmulCache cache;
  MatmulLog log;
  int64_t round = 0;

  Library() : cache(matmul_cache_file(cuda_backend() ? cuda_backend()->info().name : "none", cublasLtGetVersion())) {
    check_lt(cublasLtCreate(&handle), "cublasLtCreate");
  }
};
// Its end saves the cache; the handle is left to the process's, as the driver may be gone by then.
Library& library() {
  static Library l;
  return l;
}

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: refuse("matmul", std::string("element type ") + name_of(t) + " is not supported; use fp32, bf16 or fp16");
  }
}

// One call of cuBLASLt: a problem without its outer batches. It is row-major; read column by column the same memory is
// the transposed problem cᵀ = bᵀ·aᵀ, so b comes first and no operand is moved.
struct Product {
  const MatmulProblem& p;
  bool accumulate;
  const char* added;  // what it adds to, if not the output itself
  MathMode math;      // tf32 only for fp32 operands
  void* workspace;
  int64_t workspace_bytes;
  cudaStream_t stream;

  // 1, 2, 4, 8 or 16: what every batch's address is a multiple of.
  static int64_t alignment(const MatmulOperand& o) {
    auto bits = reinterpret_cast<uintptr_t>(o.data) | uintptr_t(o.outer_stride * size_of(o.dtype)) | 16u;
    return int64_t(bits & (~bits + 1));
  }

  MatmulKey key() const {
    int64_t flags = int64_t(p.a.dtype) | int64_t(p.c.dtype) << 4 | int64_t(p.a.transposed) << 8 |
                    int64_t(p.b.transposed) << 9 | int64_t(accumulate) << 10 | int64_t(math) << 11 |
                    alignment(p.a) << 16 | alignment(p.b) << 24 | alignment(p.c) << 32 | int64_t(!tuning) << 48;
    return {{p.m, p.n, p.k, p.a.ld, p.b.ld, p.c.ld, p.inner, p.a.inner_stride, p.b.inner_stride, p.c.inner_stride,
             workspace_bytes, flags}};
  }

  cublasStatus_t run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, int64_t outer, void* c) const {
    static constexpr float zero = 0, one = 1;
    const void* a = p.a.data + outer * p.a.outer_stride * size_of(p.a.dtype);
    const void* b = p.b.data + outer * p.b.outer_stride * size_of(p.b.dtype);
    return cublasLtMatmul(library().handle, plan.operation, &one, b, plan.first, a, plan.second,
                          accumulate ? &one : &zero, added_to(outer, c), plan.result, c, plan.result, &algorithm,
                          workspace, size_t(workspace_bytes), stream);
  }
  const void* added_to(int64_t outer, void* c) const {
    return added ? added + outer * p.c.outer_stride * size_of(p.c.dtype) : c;
  }
  void* output(int64_t outer) const { return p.c.data + outer * p.c.outer_stride * size_of(p.c.dtype); }
};

cublasLtMatrixLayout_t layout(const MatmulOperand& o, int64_t rows, int64_t cols, int64_t batch) {
  // rows × cols as stored, row-major: column-major it is cols × rows.
  cublasLtMatrixLayout_t l;
  check_lt(cublasLtMatrixLayoutCreate(&l, data_type(o.dtype), uint64_t(cols), uint64_t(rows), o.ld),
           "cublasLtMatrixLayoutCreate");
  int32_t count = int32_t(batch);
  auto set = [&](cublasLtMatrixLayoutAttribute_t name, const auto& value) {
    check_lt(cublasLtMatrixLayoutSetAttribute(l, name, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
  };
  if (batch > 1) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, o.inner_stride);
  }
  return l;
}

Plan describe(const Product& product) {
  const MatmulProblem& p = product.p;
  Plan plan;
  bool tf32 = product.math == MathMode::tf32;
  check_lt(
      cublasLtMatmulDescCreate(&plan.operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  auto transpose = [&](cublasLtMatmulDescAttributes_t name, bool transposed) {
    cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_lt(cublasLtMatmulDescSetAttribute(plan.operation, name, &op, sizeof op), "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed);
  plan.first = p.b.transposed ? layout(p.b, p.n, p.k, p.inner) : layout(p.b, p.k, p.n, p.inner);
  plan.second = p.a.transposed ? layout(p.a, p.k, p.m, p.inner) : layout(p.a, p.m, p.k, p.inner);
  plan.result = layout(p.c, p.m, p.n, p.inner);
  return plan;
}

struct Candidates {
  cublasLtMatmulHeuristicResult_t results[most_candidates];
  int count = 0;
};

Candidates candidates_for(const Product& product, const Plan& plan, int wanted) {
  cublasLtMatmulPreference_t preference;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(product.workspace_bytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(Product::alignment(product.p.b)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(Product::alignment(product.p.a)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(Product::alignment(product.p.c)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(Product::alignment(product.p.c)));
  Candidates c;
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library().handle, plan.operation, plan.first, plan.second, plan.result,
                                     plan.result, preference, wanted, c.results, &c.count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || c.count == 0) {
    const MatmulProblem& p = product.p;
    fail(ErrorKind::other, std::string("matmul on CUDA: cuBLASLt has no algorithm for m ") + std::to_string(p.m) +
                               ", n " + std::to_string(p.n) + ", k " + std::to_string(p.k) + ", " + name_of(p.a.dtype) +
                               " to " + name_of(p.c.dtype) + " (" + cublasLtGetStatusString(status) + ")");
  }
  return c;
}

// Somewhere to write while timing: the output itself, unless it is added to.
class Scratch {
 public:
  explicit Scratch(const Product& product) : data_(product.output(0)) {
    if (!product.accumulate || product.added) return;
    const MatmulOperand& c = product.p.c;
    size_t elements = size_t((product.p.inner - 1) * c.inner_stride + (product.p.m - 1) * c.ld + product.p.n);
    data_ = nullptr;
    if (cudaMalloc(&owned_, elements * size_t(size_of(c.dtype))) != cudaSuccess) {
      cudaGetLastError();
      owned_ = nullptr;
    } else if (cudaMemsetAsync(owned_, 0, elements * size_t(size_of(c.dtype)), product.stream) == cudaSuccess) {
      data_ = owned_;
    }
  }
  ~Scratch() {
    if (owned_) cudaFree(owned_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }  // null: no memory left

 private:
  void* owned_ = nullptr;
  void* data_;
};

class Stopwatch {
 public:
  Stopwatch() {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  // Milliseconds per run; negative if the library refuses.
  template <class Run> float time(int runs, cudaStream_t stream, const Run& run) {
    check_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
    for (int i = 0; i < runs; ++i)
      if (run() != CUBLAS_STATUS_SUCCESS) return -1;
    check_cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "timing a product");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms / float(runs);
  }

 private:
  cudaEvent_t begin_, end_;
};

// The index of the fastest candidate, or -1 when nothing could be timed.
int fastest(const Product& product, const Plan& plan, const Candidates& c) {
  Scratch scratch(product);
  if (!scratch.data()) return -1;
  Stopwatch watch;
  int best = -1;
  float best_ms = 0;
  for (int i = 0; i < c.count; ++i) {
    if (c.results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    auto run = [&] { return product.run(plan, c.results[i].algo, 0, scratch.data()); };
    float ms = watch.time(1, product.stream, run);  // the warm-up, which also loads the kernel
    if (ms < 0) continue;
    ms = watch.time(1, product.stream, run);
    bool hopeless = best >= 0 && ms > 1.5f * best_ms;
    if (ms < long_ms && !hopeless) ms = watch.time(ms < 0.05f ? 10 : 3, product.stream, run);
    if (ms < 0) continue;
    if (best < 0 || ms < clearly_faster * best_ms) best = i, best_ms = ms;
  }
  return best;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void choose(const Product& product, const MatmulKey& key, Plan& plan) {
  Library& l = library();
  static_assert(sizeof(MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
  if (tuning) {
    if (const MatmulAlgorithm* known = l.cache.find(key)) {
      std::memcpy(&plan.algorithm, known, sizeof plan.algorithm);
      cublasLtMatmulHeuristicResult_t r{};
      auto status = cublasLtMatmulAlgoCheck(l.handle, plan.operation, plan.first, plan.second, plan.result, plan.result,
                                            &plan.algorithm, &r);
      if (status == CUBLAS_STATUS_SUCCESS && r.workspaceSize <= size_t(product.workspace_bytes)) return;
    }
  }
  bool tune = tuning && !capturing(product.stream);
  Candidates c = candidates_for(product, plan, tune ? most_candidates : 1);
  int64_t begin = steady_ns();
  int best = tune && c.count > 1 ? fastest(product, plan, c) : -1;
  if (best >= 0) l.log.tuned(double(steady_ns() - begin) / 1e9);
  plan.algorithm = c.results[best < 0 ? 0 : best].algo;
  if (best < 0 && !(tune && c.count == 1)) return;
  MatmulAlgorithm chosen;
  std::memcpy(&chosen, &plan.algorithm, sizeof chosen);
  l.cache.put(key, chosen);
}

const Plan& plan_for(const Product& product) {
  MatmulKey key = product.key();
  Library& l = library();
  std::lock_guard guard(l.lock);
  auto it = l.plans.find(key);
  if (it == l.plans.end()) [[unlikely]] {
    Plan plan = describe(product);
    choose(product, key, plan);
    it = l.plans.emplace(key, plan).first;
  }
  if (it->second.logged != l.round) [[unlikely]] {
    it->second.logged = l.round;
    MatmulAlgorithm chosen;
    std::memcpy(&chosen, &it->second.algorithm, sizeof chosen);
    l.log.used(key, chosen);
  }
  return it->second;
}

void zero_output(const MatmulProblem& p, cudaStream_t stream) {
  int64_t size = size_of(p.c.dtype);
  for (int64_t o = 0; o < p.outer; ++o)
    for (int64_t i = 0; i < p.inner; ++i)
      check_cuda(cudaMemset2DAsync(p.c.data + (o * p.c.outer_stride + i * p.c.inner_stride) * size,
                                   size_t(p.c.ld * size), 0, size_t(p.n * size), size_t(p.m), stream),
                 "cudaMemset2DAsync");
}

}  // namespace

void matmul(const KernelCall& call) {
  MatmulProblem p;
  if (!matmul_problem(call, p)) refuse("matmul", "the batches of these operands need more than two levels of strides");
  if (p.c.transposed) {  // cᵀ = bᵀ·aᵀ has c's rows contiguous
    std::swap(p.a, p.b);
    std::swap(p.m, p.n);
    p.a.transposed = !p.a.transposed;
    p.b.transposed = !p.b.transposed;
    p.c.transposed = false;
  }
  if (p.a.dtype != p.b.dtype || (p.c.dtype != p.a.dtype && !(p.c.dtype == DType::f32 && is_16bit(p.a.dtype))))
    refuse("matmul", std::string("no product of ") + name_of(p.a.dtype) + " and " + name_of(p.b.dtype) + " into " +
                         name_of(p.c.dtype));
  if (p.m == 0 || p.n == 0 || p.inner == 0 || p.outer == 0) return;
  cudaStream_t stream = stream_of(call);
  if (p.k == 0) {
    if (!call.accumulates(0)) zero_output(p, stream);
    return;
  }
  MathMode math = p.a.dtype == DType::f32 ? call.math : MathMode::full;
  const char* added = call.n_in == 3 ? call.in[2].as<char>() : nullptr;
  if (added == p.c.data) added = nullptr;
  Product product{p,
                  call.accumulates(0) || call.n_in == 3,
                  added,
                  math,
                  call.workspace,
                  call.workspace ? call.workspace_bytes : 0,
                  stream};
  const Plan& plan = plan_for(product);
  for (int64_t o = 0; o < p.outer; ++o)
    check_lt(product.run(plan, plan.algorithm, o, product.output(o)), "cublasLtMatmul");
}

}  // namespace cuda

ProductTuning product_tuning() {
  if (!cuda_backend()) return {};
  cuda::Library& l = cuda::library();
  std::lock_guard guard(l.lock);
  return l.log.summary();
}
void restart_product_tuning() {
  if (!cuda_backend()) return;
  cuda::Library& l = cuda::library();
  std::lock_guard guard(l.lock);
  l.log = {};
  ++l.round;
}
void set_product_tuning(bool on) { cuda::tuning = on; }
bool product_tuning_is_on() { return cuda::tuning; }

CudaVersions cuda_versions() {
  CudaVersions v;
  cudaRuntimeGetVersion(&v.runtime);
  if (cudaDriverGetVersion(&v.driver) != cudaSuccess) v.driver = 0;
  v.cublaslt = int(cublasLtGetVersion());
  return v;
}

}  // namespace sinter
