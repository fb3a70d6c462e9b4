/* sinter for C: attention on memory you own, on the CPU or an NVIDIA GPU. Link with -lsinter (libsinter.so).
 *
 *   sinter_attention a = SINTER_ATTENTION_INIT;
 *   a.q = sinter_tensor_contiguous(q, SINTER_F32, batch, heads, queries, head_dim);
 *   a.k = ..., a.v = ..., a.o = ..., a.lse = lse;
 *   a.causal = 1;
 *   if (sinter_attention_forward(&a) != SINTER_OK) puts(sinter_last_error());
 *
 * Every function may be called from any thread at any time. None throws, exits or prints: each returns a sinter_status,
 * and sinter_last_error() tells the calling thread why its last call failed. Calls for the CPU return when the result
 * is there; calls for CUDA return when the work is queued on the stream, and the memory must stay valid until it has
 * run. One GPU per process: the one that is current at the first call, which becomes the current one of every thread
 * that makes a call for CUDA. */
#ifndef SINTER_H
#define SINTER_H

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): this is C */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#define SINTER_VERSION_MAJOR 0
#define SINTER_VERSION_MINOR 1
#define SINTER_VERSION_PATCH 0
#define SINTER_VERSION (SINTER_VERSION_MAJOR * 10000 + SINTER_VERSION_MINOR * 100 + SINTER_VERSION_PATCH)

#define SINTER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* SINTER_VERSION of the library at hand, which may be newer than this header. */
SINTER_API int sinter_version(void);

typedef enum sinter_status {
  SINTER_OK = 0,
  SINTER_ERROR = 1,            /* something inside failed */
  SINTER_INVALID_ARGUMENT = 2, /* what was asked makes no sense, or this library cannot do it */
  SINTER_OUT_OF_MEMORY = 3,
  SINTER_UNSUPPORTED = 4 /* the device, or a kernel for it, is not there: no GPU, or a build without CUDA */
} sinter_status;

/* Why this thread's last call failed; "" after one that did not. Valid until its next call. */
SINTER_API const char* sinter_last_error(void);

typedef enum sinter_dtype {
  SINTER_F64 = 0 /* CPU only */,
  SINTER_F32 = 1,
  SINTER_BF16 = 2,
  SINTER_F16 = 3
} sinter_dtype;
typedef enum sinter_device { SINTER_CPU = 0, SINTER_CUDA = 1 } sinter_device;

/* Which kernel: the fastest the device has for the call; the CPU's readable reference; the one for every GPU since
 * sm_80. */
typedef enum sinter_kernel {
  SINTER_KERNEL_BEST = 0,
  SINTER_KERNEL_TILED = 1,
  SINTER_KERNEL_PORTABLE = 2
} sinter_kernel;

/* Four-dimensional memory: (batch, heads, positions, head dimension). Strides are in elements and not negative; the
 * last is 1. Nothing else is assumed, so heads cut out of a merged q|k|v product need no copy. */
typedef struct sinter_tensor {
  void* data;
  int64_t dims[4];
  int64_t strides[4];
  int32_t dtype; /* sinter_dtype */
  int32_t reserved;
} sinter_tensor;

/* One attention, both directions: o = softmax(scale · q·kᵀ) · v.
 *
 * q, o, d_o, dq: (B, H, Nq, D). k, v, dk, dv: (B, Hkv, Nk, D), where Hkv divides H and query head h reads head
 * h / (H / Hkv). All have one type. lse holds a number per query, contiguous (B, H, Nq), float (double when the tensors
 * are f64): the natural logarithm of the sum of the exponentials of its scaled scores, which backward wants back.
 *
 * forward  reads q, k, v                  and writes o, lse.
 * backward reads q, k, v, o, lse, d_o     and writes dq, dk, dv (contiguous on CUDA).
 *
 * A query that sees nothing gives o = 0, lse = -inf and no gradient. Outputs may not overlap inputs. */
typedef struct sinter_attention {
  size_t struct_size;    /* sizeof(sinter_attention): tells the library which fields its caller knows */
  int32_t device;        /* sinter_device: where all the memory lies */
  int32_t causal;        /* not 0: query i sees the keys j <= i + causal_offset */
  int64_t causal_offset; /* 0 as in PyTorch's is_causal; Nk - Nq when the queries are the last positions of a cache */
  double scale;          /* 0: 1 / sqrt(D) */
  int32_t deterministic; /* not 0: backward gives the same bits every time. The CPU always does. */
  int32_t kernel;        /* sinter_kernel */
  int32_t tile;          /* rows of a tile for the tiled and portable kernels; 0: the kernel's choice */
  int32_t reserved;
  void* stream;    /* CUDA: the cudaStream_t to queue on; null is the default stream */
  void* workspace; /* backward's scratch memory on the device, 16-byte aligned; null: the library's own allocator */
  size_t workspace_bytes; /* of workspace: at least what sinter_attention_backward_workspace says */
  sinter_tensor q, k, v, o;
  void* lse;
  sinter_tensor d_o, dq, dk, dv;
} sinter_attention;

#ifdef __cplusplus
static inline sinter_attention sinter_attention_init() {
  sinter_attention a = sinter_attention();
  a.struct_size = sizeof(sinter_attention);
  return a;
}
#define SINTER_ATTENTION_INIT sinter_attention_init()
#else
#define SINTER_ATTENTION_INIT \
  { .struct_size = sizeof(sinter_attention) }
#endif

SINTER_API int sinter_attention_forward(const sinter_attention* attention);
SINTER_API int sinter_attention_backward(const sinter_attention* attention);
/* The bytes of workspace that backward wants for this device, q and k. Looks at nothing else. */
SINTER_API int sinter_attention_backward_workspace(const sinter_attention* attention, size_t* bytes);

static inline sinter_tensor sinter_tensor_contiguous(void* data, sinter_dtype dtype, int64_t batch, int64_t heads,
                                                     int64_t positions, int64_t head_dim) {
  sinter_tensor t;
  t.data = data;
  t.dims[0] = batch, t.dims[1] = heads, t.dims[2] = positions, t.dims[3] = head_dim;
  t.strides[3] = 1, t.strides[2] = head_dim, t.strides[1] = positions * head_dim, t.strides[0] = heads * t.strides[1];
  t.dtype = (int32_t)dtype;
  t.reserved = 0;
  return t;
}

#ifdef __cplusplus
}
#endif

#endif
