// o = softmax(scale · q·kᵀ) · v without ever holding the scores: memory stays linear in the number of positions. Also
// gives L, the logarithm of the sum of the exponentials of a row's scores, which is all that backward needs of them.
#include "ops/attention.h"

#include "backend/workspace.h"
#include "ops/rules.h"

namespace sinter {

constexpr int64_t most_cuda_head_dim = 128;

std::string missing_attention(const DeviceInfo& device, int64_t head_dim) {
  if (device.type != DeviceType::cuda) return "";
  if (head_dim > most_cuda_head_dim)
    return fmt::format("the CUDA kernels take head dimensions up to {}, and this is {}", most_cuda_head_dim, head_dim);
  int cc = device.compute_capability;
  return cc >= 80 ? ""
                  : fmt::format("it needs compute capability 8.0, and {} has {}.{}", device.name, cc / 10, cc % 10);
}

namespace {

// Pairs of a query and a key that it sees.
double pairs(const TensorRef& q, const TensorRef& k, const AttentionAttrs& a, bool all) {
  int64_t n = q.dims[2], keys = k.dims[2];
  double heads = double(q.dims[0] * q.dims[1]);
  if (all || !a.causal) return heads * double(n) * double(keys);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(std::clamp<int64_t>(i + a.causal_offset + 1, 0, keys));
  return heads * sum;
}

}  // namespace

// By convention a model's FLOPs count attention in full, mask or not; what runs is what the mask leaves.
Cost attention_cost(const TensorRef& q, const TensorRef& k, const AttentionAttrs& attrs, double products) {
  double per_pair = 2 * products * double(q.dims[3]), visible = pairs(q, k, attrs, false);
  return {per_pair * pairs(q, k, attrs, true), 5 * visible, per_pair * visible};
}

namespace ops {
namespace {

void check_heads(const OpCall& c) {
  const Tensor &q = c.in(0), &k = c.in(1), &v = c.in(2);
  rules::check_float(c, 0);
  check(q.rank() == 4 && k.rank() == 4 && k.dims() == v.dims() && q.size(0) == k.size(0) && q.size(3) == k.size(3),
        "{}: q {}, k {} and v {} must be (batch, heads, positions, head dimension), with k and v alike", c.op.name,
        q.dims(), k.dims(), v.dims());
  check(q.dtype() == k.dtype() && q.dtype() == v.dtype(), "{}: q, k and v must have one type, not {}, {} and {}",
        c.op.name, name_of(q.dtype()), name_of(k.dtype()), name_of(v.dtype()));
  check(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "{}: {} query heads cannot share {} key/value heads evenly",
        c.op.name, q.size(1), k.size(1));
}

// The output lies in memory as (batch, positions, heads, head dimension): joining the heads is then a view.
void infer_attention(const OpCall& c, OutSpecs& out) {
  check_heads(c);
  const Tensor& q = c.in(0);
  int64_t H = q.size(1), N = q.size(2), D = q.size(3);
  out.add_strided(q.dims(), q.dtype(), {N * H * D, D, H * D, 1});
  out.add({q.size(0), H, N}, rules::wide(q.dtype()));
}
void infer_attention_backward(const OpCall& c, OutSpecs& out) {
  check_heads(c);
  for (int i = 0; i < 3; ++i) rules::same_as(i, c, out);
}
void grad_attention(GradCall& g) {
  g.emit_all({0, 1, 2}, attention_backward, g.attrs(), g.input(0), g.input(1), g.input(2), g.output(0), g.output(1),
             g.grad(0));
}

bool contiguous_heads(const TensorRef& t, int, const Attrs&) {
  return t.rank == 4 && (t.strides[3] == 1 || t.dims[3] == 1) && t.strides[2] >= t.dims[3];
}
bool contiguous_heads_or_statistics(const TensorRef& t, int input, const Attrs& a) {
  return input != 4 && contiguous_heads(t, input, a);
}

Cost cost_of(const OpCall& c, double products) {
  return attention_cost(c.in(0).ref(), c.in(1).ref(), c.attrs_as<AttentionAttrs>(), products);
}
Cost cost_attention(const OpCall& c, const Outputs&) { return cost_of(c, 2); }
Cost cost_attention_backward(const OpCall& c, const Outputs&) { return cost_of(c, 5); }

Sample sample(Dims q, Dims k, AttentionAttrs a) { return {{{q}, {k}, {k}}, Attrs::of(a)}; }

}  // namespace

const OpDef attention{
    .name = "attention",
    .infer = infer_attention,
    .grad = grad_attention,
    .cost = cost_attention,
    .workspace = workspace::attention,
    .kernel = &KernelTable::attention,
    .autocast = AutocastPolicy::lower,
    .saves_inputs = 0b111,
    .saves_outputs = 0b11,
    .accepts = contiguous_heads,
    .samples = {sample({2, 2, 5, 8}, {2, 2, 5, 8}, {0.5, true, 0}), sample({1, 4, 7, 4}, {1, 2, 9, 4}, {0.3, true, 2}),
                sample({2, 3, 4, 6}, {2, 1, 3, 6}, {1, false, 0}), sample({1, 1, 6, 4}, {1, 1, 6, 4}, {0.7, true, -2}),
                sample({1, 2, 70, 16}, {1, 2, 300, 16}, {0.25, true, 230})}};

const OpDef attention_backward{.name = "attention_backward",
                               .infer = infer_attention_backward,
                               .cost = cost_attention_backward,
                               .workspace = workspace::attention_backward,
                               .kernel = &KernelTable::attention_backward,
                               .accepts = contiguous_heads_or_statistics};

const OpDef attention_weights{
    .name = "attention_weights", .infer = rules::only_compiled, .kernel = &KernelTable::attention_weights};
const OpDef attention_weights_backward{.name = "attention_weights_backward",
                                       .infer = rules::only_compiled,
                                       .kernel = &KernelTable::attention_weights_backward};

}  // namespace ops

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionAttrs& attrs, Tensor* lse) {
  Outputs o = dispatch(ops::attention, Attrs::of(attrs), q, k, v);
  if (lse) *lse = o[1];
  return o[0];
}

}  // namespace sinter
