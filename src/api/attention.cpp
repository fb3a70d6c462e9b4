// The C API (include/sinter/sinter.h): checks what it is given, then calls the backend's kernel. No tensors, no
// tape; nothing is thrown past here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <sinter/sinter.h>
#include <string>

#include "backend/workspace.h"
#include "core/check.h"
#include "ops/context.h"

namespace sinter {
namespace {

static_assert(int(DType::f64) == SINTER_F64 && int(DType::f32) == SINTER_F32 && int(DType::bf16) == SINTER_BF16 &&
              int(DType::f16) == SINTER_F16);
static_assert(int(AttentionKernel::best) == SINTER_KERNEL_BEST && int(AttentionKernel::tiled) == SINTER_KERNEL_TILED &&
              int(AttentionKernel::portable) == SINTER_KERNEL_PORTABLE);

thread_local std::string last_error;

struct Unsupported {
  std::string message;
};

// Runs f and turns whatever it throws into a status.
template <class F> int guarded(const F& f) noexcept {
  try {
    last_error.clear();
    f();
    return SINTER_OK;
  } catch (const Unsupported& e) {
    last_error = e.message;
    return SINTER_UNSUPPORTED;
  } catch (const Error& e) {
    last_error = e.what();
    return e.kind() == ErrorKind::usage    ? SINTER_INVALID_ARGUMENT
           : e.kind() == ErrorKind::memory ? SINTER_OUT_OF_MEMORY
                                           : SINTER_ERROR;
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return SINTER_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    last_error = e.what();
    return SINTER_ERROR;
  } catch (...) {
    last_error = "an unknown error";
    return SINTER_ERROR;
  }
}

// The caller's struct as this library knows it: fields an older caller lacks are 0, and
// those only a newer one has must be.
sinter_attention known_part(const sinter_attention* given) {
  check(given, "the sinter_attention is a null pointer");
  size_t size = given->struct_size;
  check(size >= offsetof(sinter_attention, dv) + sizeof(sinter_tensor),
        "struct_size is {}, less than any version's; set it to sizeof(sinter_attention)", size);
  auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(sinter_attention); i < size; ++i)
    check(bytes[i] == 0, "struct_size is {}, this library's {}, and a field it does not know is set: it is too old",
          size, sizeof(sinter_attention));
  sinter_attention a{};
  std::memcpy(&a, given, std::min(size, sizeof(a)));
  return a;
}

std::string dims_of(const sinter_tensor& t) {
  return fmt::format("({}, {}, {}, {})", t.dims[0], t.dims[1], t.dims[2], t.dims[3]);
}

TensorRef ref_of(const char* name, const sinter_tensor& t) {
  check(t.dtype >= SINTER_F64 && t.dtype <= SINTER_F16, "{}: {} is not a sinter_dtype", name, t.dtype);
  TensorRef r;
  r.data = t.data;
  r.dtype = DType(t.dtype);
  r.rank = 4;
  int64_t elements = 1;
  for (int d = 0; d < 4; ++d) {
    check(t.dims[d] >= 0 && t.dims[d] < int64_t(1) << 40, "{}: impossible dimensions {}", name, dims_of(t));
    check(t.strides[d] >= 0, "{}: stride {} is {}, but strides cannot be negative", name, d, t.strides[d]);
    r.dims[d] = t.dims[d], r.strides[d] = t.strides[d];
    check(t.dims[d] == 0 || elements <= (int64_t(1) << 48) / std::max<int64_t>(1, t.dims[d]), "{}: {} is too large",
          name, dims_of(t));
    elements *= t.dims[d];
  }
  check(t.strides[3] == 1 || t.dims[3] <= 1 || elements == 0, "{}: its last stride is {}, but must be 1", name,
        t.strides[3]);
  check(t.data || elements == 0, "{}: its data is a null pointer", name);
  return r;
}
TensorRef output_of(const char* name, const sinter_tensor& t, bool contiguous) {
  TensorRef r = ref_of(name, t);
  int64_t expected = 1;
  bool empty = std::find(r.dims, r.dims + 4, 0) != r.dims + 4;
  for (int d = 3; d >= 0 && !empty; --d) {
    check(r.strides[d] != 0 || r.dims[d] <= 1, "{}: stride {} is 0, so its elements would overwrite each other", name,
          d);
    check(!contiguous || r.strides[d] == expected || r.dims[d] <= 1, "{}: must be contiguous on CUDA", name);
    expected *= r.dims[d];
  }
  return r;
}

void same_dims(const char* a_name, const TensorRef& a, const char* b_name, const TensorRef& b, const sinter_tensor& ta,
               const sinter_tensor& tb) {
  check(std::equal(a.dims, a.dims + 4, b.dims), "{} is {}, but {} is {}", a_name, dims_of(ta), b_name, dims_of(tb));
  check(a.dtype == b.dtype, "{} is {}, but {} is {}; all must have one type", a_name, name_of(a.dtype), b_name,
        name_of(b.dtype));
}

DeviceType device_of(const sinter_attention& a) {
  check(a.device == SINTER_CPU || a.device == SINTER_CUDA, "{} is not a sinter_device", a.device);
  return a.device == SINTER_CPU ? DeviceType::cpu : DeviceType::cuda;
}
DeviceBackend& backend_for(DeviceType device) {
  if (device == DeviceType::cuda && !cuda_backend()) throw Unsupported{std::string("cuda: ") + cuda_missing_reason()};
  return backend_of(device);
}
Kernel kernel_for(DeviceType device, Kernel KernelTable::*which) { return backend_for(device).kernels().*which; }

// q, k and v checked, and all the attributes.
KernelCall call_for(const sinter_attention& a, DeviceType device, TensorRef* in, TensorRef* out) {
  KernelCall call;
  call.in = in, call.n_in = 3, call.out = out;
  in[0] = ref_of("q", a.q), in[1] = ref_of("k", a.k), in[2] = ref_of("v", a.v);
  const TensorRef &q = in[0], &k = in[1];
  same_dims("v", in[2], "k", k, a.v, a.k);
  check(q.dtype == k.dtype, "q is {}, but k is {}; all must have one type", name_of(q.dtype), name_of(k.dtype));
  check(q.dtype != DType::f64 || device == DeviceType::cpu, "fp64 is for the CPU only");
  check(q.dims[0] == k.dims[0] && q.dims[3] == k.dims[3], "q {} and k {} must have the same batch and head dimension",
        dims_of(a.q), dims_of(a.k));
  check(q.dims[3] > 0, "q: the head dimension is 0");
  check(k.dims[1] > 0 && q.dims[1] % k.dims[1] == 0, "{} query heads cannot share {} key/value heads evenly", q.dims[1],
        k.dims[1]);
  check(std::isfinite(a.scale), "scale is {}", a.scale);
  // The CUDA kernels count key blocks of 128 in 16 bits there.
  check(!a.deterministic || device == DeviceType::cpu || q.dims[3] <= 64 || k.dims[2] <= int64_t(65535) * 128,
        "deterministic backward on CUDA takes up to {} keys at this head dimension", int64_t(65535) * 128);
  check(a.kernel >= SINTER_KERNEL_BEST && a.kernel <= SINTER_KERNEL_PORTABLE, "{} is not a sinter_kernel", a.kernel);
  AttentionAttrs attrs;
  attrs.scale = a.scale != 0 ? a.scale : 1 / std::sqrt(double(q.dims[3]));
  attrs.causal = a.causal != 0;
  // Past the ends of q and k every offset is the same; this keeps sums with it from overflowing.
  attrs.causal_offset = std::clamp(a.causal_offset, -q.dims[2] - 1, k.dims[2] + 1);
  attrs.deterministic = a.deterministic != 0;
  attrs.kernel = AttentionKernel(a.kernel);
  attrs.tile = a.tile;
  call.attrs = Attrs::of(attrs);
  call.stream = a.stream;
  return call;
}
TensorRef statistics_of(const sinter_attention& a, const TensorRef& q) {
  check(a.lse || q.dims[0] * q.dims[1] * q.dims[2] == 0, "lse is a null pointer");
  TensorRef r;
  r.data = a.lse;
  r.dtype = q.dtype == DType::f64 ? DType::f64 : DType::f32;
  r.rank = 3;
  for (int d = 0; d < 3; ++d) r.dims[d] = q.dims[d];
  r.strides[2] = 1, r.strides[1] = q.dims[2], r.strides[0] = q.dims[1] * q.dims[2];
  return r;
}

// Scratch memory of one call: the caller's, or the library's for as long as the object lives. On CUDA the allocator
// hands the block only to work that comes later on the same stream.
class Workspace {
 public:
  Workspace(KernelCall& call, DeviceType device, int64_t bytes, void* given, size_t given_bytes) {
    call.workspace_bytes = bytes;
    call.workspace = given;
    if (given) {
      check(given_bytes >= size_t(bytes), "the workspace has {} bytes, but this call needs {}", given_bytes, bytes);
      check(reinterpret_cast<uintptr_t>(given) % 16 == 0, "the workspace must lie at a multiple of 16 bytes");
    } else if (bytes > 0) {
      allocator_ = &allocator_of(device);
      block_ = allocator_->allocate(bytes, call.stream);
      call.workspace = block_.data;
    }
  }
  ~Workspace() {
    if (allocator_) allocator_->release(block_.token);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  CachingAllocator* allocator_ = nullptr;
  Allocator::Allocation block_{};
};

void forward(const sinter_attention& a) {
  DeviceType device = device_of(a);
  TensorRef in[3], out[2];
  KernelCall call = call_for(a, device, in, out);
  call.n_out = 2;
  out[0] = output_of("o", a.o, false);
  out[1] = statistics_of(a, in[0]);
  same_dims("o", out[0], "q", in[0], a.o, a.q);
  Kernel kernel = kernel_for(device, &KernelTable::attention);
  Workspace workspace(call, device, workspace::attention(call, device), nullptr, 0);
  kernel(call);
}

void backward(const sinter_attention& a) {
  DeviceType device = device_of(a);
  TensorRef in[6], out[3];
  KernelCall call = call_for(a, device, in, out);
  bool contiguous = device == DeviceType::cuda;
  call.n_in = 6, call.n_out = 3;
  in[3] = ref_of("o", a.o), in[4] = statistics_of(a, in[0]), in[5] = ref_of("d_o", a.d_o);
  out[0] = output_of("dq", a.dq, contiguous), out[1] = output_of("dk", a.dk, contiguous);
  out[2] = output_of("dv", a.dv, contiguous);
  same_dims("o", in[3], "q", in[0], a.o, a.q);
  same_dims("d_o", in[5], "q", in[0], a.d_o, a.q);
  same_dims("dq", out[0], "q", in[0], a.dq, a.q);
  same_dims("dk", out[1], "k", in[1], a.dk, a.k);
  same_dims("dv", out[2], "v", in[2], a.dv, a.v);
  Kernel kernel = kernel_for(device, &KernelTable::attention_backward);
  Workspace workspace(call, device, workspace::attention_backward(call, device), a.workspace, a.workspace_bytes);
  kernel(call);
}

void backward_workspace(sinter_attention a, size_t* bytes) {
  check(bytes, "bytes is a null pointer");
  DeviceType device = device_of(a);
  static char anything;  // pointers do not matter here
  a.v = a.k;
  for (sinter_tensor* t : {&a.q, &a.k, &a.v}) t->data = &anything;
  TensorRef in[3];
  *bytes = size_t(workspace::attention_backward(call_for(a, device, in, nullptr), device));
}

}  // namespace
}  // namespace sinter

using namespace sinter;

int sinter_version(void) { return SINTER_VERSION; }
const char* sinter_last_error(void) { return last_error.c_str(); }
int sinter_attention_forward(const sinter_attention* a) {
  return guarded([&] { forward(known_part(a)); });
}
int sinter_attention_backward(const sinter_attention* a) {
  return guarded([&] { backward(known_part(a)); });
}
int sinter_attention_backward_workspace(const sinter_attention* a, size_t* bytes) {
  return guarded([&] { backward_workspace(known_part(a), bytes); });
}
