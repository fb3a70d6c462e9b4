// Between (batch, position, width) and (batch, head, position, head dimension), rotating q and k on the way (RoPE).
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

void infer_split_heads(const OpCall& c, OutSpecs& out) {
  const auto& a = c.attrs_as<HeadsAttrs>();
  const Tensor& x = c.in(0);
  rules::check_float(c, 0);
  int64_t all = a.heads + 2 * a.kv_heads;
  check(x.rank() == 3 && a.heads > 0 && a.kv_heads > 0 && x.size(2) % all == 0,
        "split_heads: {} does not split into {} query and {} key/value heads", x.dims(), a.heads, a.kv_heads);
  int64_t D = x.size(2) / all;
  check(D % 2 == 0, "split_heads: the head dimension {} is odd, but RoPE rotates pairs", D);
  check(c.in(1).rank() == 2 && c.in(1).size(0) >= x.size(1) && c.in(1).size(1) == D / 2 &&
            c.in(2).dims() == c.in(1).dims(),
        "split_heads: tables {} do not cover {} positions of head dimension {}", c.in(1).dims(), x.size(1), D);
  out.add({x.size(0), a.heads, x.size(1), D}, x.dtype());
  out.add({x.size(0), a.kv_heads, x.size(1), D}, x.dtype());
  out.add({x.size(0), a.kv_heads, x.size(1), D}, x.dtype());
}
bool rows_of_qkv(const TensorRef& t, int input, const Attrs& attrs) {
  return input == 0 && rules::rows(t, input, attrs);
}
void grad_split_heads(GradCall& g) {
  g.emit_to(0, split_heads_backward, g.attrs(), g.grad(0), g.grad(1), g.grad(2), g.input(1), g.input(2));
}
void infer_split_heads_backward(const OpCall& c, OutSpecs& out) {
  const Tensor &q = c.in(0), &k = c.in(1);
  out.add({q.size(0), q.size(2), (q.size(1) + 2 * k.size(1)) * q.size(3)}, q.dtype());
}

}  // namespace

const OpDef split_heads{.name = "split_heads",
                        .infer = infer_split_heads,
                        .grad = grad_split_heads,
                        .cost = rules::per_element,
                        .kernel = &KernelTable::split_heads,
                        .saves_inputs = 0b110,
                        .differentiable = 0b111,
                        .accepts = rows_of_qkv,
                        .samples = {{{{{2, 3, 24}}, {{5, 2}, SampleInput::angles}, {{5, 2}, SampleInput::angles}},
                                     Attrs::of(HeadsAttrs{2, 2, true})},
                                    {{{{2, 3, 48}}, {{3, 4}, SampleInput::angles}, {{3, 4}, SampleInput::angles}},
                                     Attrs::of(HeadsAttrs{4, 1, true})},
                                    {{{{1, 5, 96}}, {{5, 8}, SampleInput::angles}, {{5, 8}, SampleInput::angles}},
                                     Attrs::of(HeadsAttrs{2, 2, false})}}};

const OpDef split_heads_backward{
    .name = "split_heads_backward",
    .infer = infer_split_heads_backward,
    .cost = rules::per_element,
    .kernel = &KernelTable::split_heads_backward,
    .samples = {
        {{{{2, 4, 3, 8}}, {{2, 2, 3, 8}}, {{2, 2, 3, 8}}, {{3, 4}, SampleInput::angles}, {{3, 4}, SampleInput::angles}},
         Attrs::of(HeadsAttrs{4, 2, true})}}};

}  // namespace ops

Heads split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const HeadsAttrs& attrs) {
  Outputs o = dispatch(ops::split_heads, Attrs::of(attrs), qkv, cos, sin);
  return {o[0], o[1], o[2]};
}

Tensor join_heads(const Tensor& x) {
  check(x.rank() == 4, "join_heads: {} is not (batch, heads, positions, head dimension)", x.dims());
  return reshape(contiguous(transpose(x, 1, 2)), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

}  // namespace sinter
