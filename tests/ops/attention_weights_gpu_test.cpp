// Attention's probabilities and the gradient of its scores as calls of their own: the CPU's against ops that are spelled out, CUDA's against the
// CPU's.
#include <cmath>

#include "backend/device.h"
#include "ops/ops.h"
#include "support/attention_reference.h"
#include "support/gpu.h"

namespace sinter {
namespace {

struct Weights {
  Tensor p, o, ds;
};

KernelCall call_of(const AttentionShape& s, std::initializer_list<TensorRef> in, std::initializer_list<TensorRef> out,
                   DeviceType device) {
  KernelCall call{};
  for (const TensorRef& t : in) call.in[call.n_in++] = t;
  for (const TensorRef& t : out) call.out[call.n_out++] = t;
  call.attrs = Attrs::of(s.attrs);
  call.stream = current_stream(device);
  return call;
}

// p and ds as parts of wider matrices (`wider` columns more, full of NaN), and ds over p or beside it.
Weights run(const AttentionShape& s, const AttentionInputs& x, int64_t wider, bool in_place) {
  DeviceType device = x.q.device();
  const KernelTable& kernels = backend_of(device).kernels();
  Dims dims{s.B, s.H, s.Nq, s.Nk + wider};
  auto matrix = [&] { return full(dims, NAN, x.q.dtype(), device); };
  auto part = [&](const Tensor& t) { return slice(t, 3, 0, s.Nk); };
  Tensor p = matrix(), o = full(x.q.dims(), NAN, x.q.dtype(), device);
  if (is_16bit(x.q.dtype())) {
    kernels.attention_weights(call_of(s, {x.q.ref(), x.k.ref()}, {part(p).ref()}, device));
    o = attention(x.q, x.k, x.v, s.attrs);
  } else {
    kernels.attention_weights(call_of(s, {x.q.ref(), x.k.ref(), x.v.ref()}, {part(p).ref(), o.ref()}, device));
  }
  Tensor given = copy(part(p)), ds = in_place ? p : matrix();
  kernels.attention_weights_backward(
      call_of(s, {x.grad.ref(), x.v.ref(), o.ref(), part(p).ref()}, {part(ds).ref()}, device));
  for (double value : to_vector(slice(ds, 3, s.Nk, wider))) EXPECT_TRUE(std::isnan(value)) << "beyond its columns";
  return {given, o, copy(part(ds))};
}

TEST(AttentionWeights, AreSoftmaxAndItsGradient) {
  Rng rng(31);
  for (int i = 0; i < 40; ++i) {
    AttentionShape s = random_attention(rng);
    s.Hkv = s.H;
    if (s.attrs.causal && s.attrs.causal_offset < 0) s.attrs.causal_offset = 0;
    AttentionInputs x = random_inputs(s, rng, DType::f64);
    SoftmaxAttrs mask{s.attrs.scale, s.attrs.causal, s.attrs.causal_offset};
    Tensor p = softmax(matmul(x.q, x.k, false, true), mask), dp = matmul(x.grad, x.v, false, true);
    Tensor ds = p * (dp - sum(p * dp, {3}, true)) * s.attrs.scale;
    Weights w = run(s, x, 0, i % 2);
    EXPECT_LT(error(to_vector(w.p), to_vector(p)), 1e-12) << s.text();
    EXPECT_LT(error(to_vector(w.o), to_vector(matmul(p, x.v))), 1e-12) << s.text();
    EXPECT_LT(error(to_vector(w.ds), to_vector(ds)), 1e-12) << s.text();
  }
}

TEST(AttentionWeightsGpu, AreTheCpus) {
  SINTER_REQUIRE_GPU();
  Rng rng(32);
  std::vector<AttentionShape> shapes;
  for (int64_t d : {1, 8, 16, 20, 32, 64, 80, 96, 128}) {
    AttentionShape s{2, 3, 3, 150, 150, d, {}};
    s.attrs.scale = 1 / std::sqrt(double(d));
    s.attrs.causal = true;
    shapes.push_back(s);
  }
  shapes.push_back({1, 2, 1, 300, 1000, 64, {.scale = 0.1, .causal = true, .causal_offset = 700}});
  shapes.push_back({1, 1, 1, 2048, 2048, 32, {.scale = 0.3, .causal = true}});
  shapes.push_back({2, 2, 2, 600, 600, 64, {.scale = 0.1}});
  shapes.push_back({1, 1, 1, 96, 96, 32, {.scale = 0.3, .causal = true, .causal_offset = -40}});
  shapes.push_back({8, 40, 40, 70, 70, 16, {.scale = 0.3, .causal = true}});  // many blocks
  for (int i = 0; i < 60; ++i) {
    shapes.push_back(random_attention(rng));
    shapes.back().attrs.scale = 0.01 + std::abs(shapes.back().attrs.scale);
  }
  int at = 0;
  for (const AttentionShape& s : shapes)
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      AttentionInputs x = random_inputs(s, rng, type), on_gpu = on_device(x, DeviceType::cuda);
      int64_t wider = at++ % 3 * 4;  // rows that begin anywhere, at multiples of 8 and of 16 bytes
      Weights expected = run(s, x, wider, false);
      Weights got = run(s, on_gpu, wider, at % 2);
      double bound = type == DType::f32 ? 2e-6 : type == DType::bf16 ? 6e-3 : 1e-3;
      EXPECT_LT(error(to_vector(got.p), to_vector(expected.p)), bound) << s.text() << " " << name_of(type);
      EXPECT_LT(error(to_vector(got.o), to_vector(expected.o)), bound) << s.text() << " " << name_of(type);
      EXPECT_LT(error(to_vector(got.ds), to_vector(expected.ds)), 3 * bound) << s.text() << " " << name_of(type);
    }
}

TEST(AttentionWeightsGpu, SameBitsEveryTime) {
  SINTER_REQUIRE_GPU();
  Rng rng(33);
  AttentionShape s{4, 2, 2, 500, 500, 64, {.scale = 0.125, .causal = true}};
  for (DType type : {DType::f32, DType::bf16}) {
    AttentionInputs x = on_device(random_inputs(s, rng, type), DeviceType::cuda);
    Weights first = run(s, x, 0, false);
    for (int i = 0; i < 10; ++i) {
      Weights again = run(s, x, 0, true);
      EXPECT_TRUE(same_bits(first.p, again.p) && same_bits(first.o, again.o) && same_bits(first.ds, again.ds));
    }
  }
}

}  // namespace
}  // namespace sinter
