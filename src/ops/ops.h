// The operations as a model writes them. Each is a thin front over dispatch; shapes are checked by the shape rules.
#pragma once
#include <vector>

#include "backend/process_group.h"
#include "ops/dispatch.h"

namespace sinter {

// Pointwise, with broadcasting from the right.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);  // the exact (erf) form
Tensor tanh(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor square(const Tensor& x);
Tensor affine(const Tensor& x, double alpha, double beta);  // alpha·x + beta
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
Tensor cast(const Tensor& x, DType to);
Tensor contiguous(const Tensor& x);  // x itself if it already is
Tensor copy(const Tensor& x);        // always fresh memory

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator*(const Tensor& a, double s) { return affine(a, s, 0); }

// Views.
Tensor reshape(const Tensor& x, Dims dims);  // one size may be -1; copies only if it must
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t length);
Tensor expand(const Tensor& x, const Dims& dims);

// Reductions; an empty list of dimensions means all.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);

// GEMMs.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);  // batched
Tensor linear(const Tensor& x, const Tensor& weight);  // x · weightᵀ, weight (out, in)

// Rows.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
Tensor softmax(const Tensor& x, const SoftmaxAttrs& attrs = {});
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);  // mean over all targets
Tensor swiglu(const Tensor& gate_up);                               // silu(first half) · second half

// Transformer pieces.
Tensor embedding(const Tensor& table, const Tensor& ids);
struct Heads {
  Tensor q, k, v;  // (batch, heads, positions, head dimension)
};
Heads split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const HeadsAttrs& attrs);
// softmax(scale · q·kᵀ)·v in linear memory; k and v may have fewer heads. `lse` gets the rows' logsumexp.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionAttrs& attrs, Tensor* lse = nullptr);
Tensor join_heads(const Tensor& x);  // (B, H, T, D) -> (B, T, H·D)

// In place, outside the tape.
void copy_into(const Tensor& to, const Tensor& from);  // casts
void add_into(const Tensor& to, const Tensor& from);   // to += from
void fill(const Tensor& to, double value);
void fill_normal(const Tensor& to, uint64_t seed, uint64_t stream, double std, double cut = 3);
void fill_uniform(const Tensor& to, uint64_t seed, uint64_t stream, double low, double high);
void fill_integers(const Tensor& to, uint64_t seed, uint64_t stream, int64_t low, int64_t high);

// Collectives (comm.cpp), on the device's communication stream.
void all_reduce(const Tensor& x, ProcessGroup& group, ReduceKind reduce = ReduceKind::sum);
void broadcast(const Tensor& x, ProcessGroup& group, int root = 0);
void reduce_scatter(const Tensor& x, const Tensor& share, ProcessGroup& group, ReduceKind reduce = ReduceKind::sum);
void all_gather(const Tensor& share, const Tensor& x, ProcessGroup& group);
// What is submitted from now on comes after the collectives so far; throws what one of them threw.
void join_communication(DeviceType device);
int64_t collectives_so_far(DeviceType device);              // that were submitted outside a trace …
void join_communication(DeviceType device, int64_t count);  // … of which only the first so many are waited for
// The caller waits until they are over, whatever became of them: before a group goes that they may still be in.
void drain_communication(DeviceType device) noexcept;

// Making tensors and reading them.
Tensor zeros(const Dims& dims, DType dtype, DeviceType device);
Tensor full(const Dims& dims, double value, DType dtype, DeviceType device);
Tensor from_host(const void* data, const Dims& dims, DType dtype, DeviceType device);
template <class T>
Tensor from_vector(const std::vector<T>& values, const Dims& dims,
                   DeviceType device);                                 // float, double, int64_t, int32_t
void write_host(const Tensor& to, const std::vector<double>& values);  // fp64 or fp32, contiguous
Tensor to(const Tensor& x, DeviceType device);
std::vector<double> to_vector(const Tensor& x);  // any type, any layout
double item(const Tensor& x);                    // of a tensor with one element

}  // namespace sinter
