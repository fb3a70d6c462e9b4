// Attention that stores its probabilities, and the gradients of its scores and queries: the CPU's against ops that are
// spelled out, CUDA's against the CPU's.
#include <cmath>

#include "backend/device.h"
#include "core/owned_call.h"
#include "ops/ops.h"
#include "support/attention_reference.h"
#include "support/gpu.h"

namespace sinter {
namespace {

struct Weights {
  Tensor p, o, ds, dq;
};

OwnedCall call_of(const AttentionShape& s, std::initializer_list<TensorRef> in, std::initializer_list<TensorRef> out,
                  int64_t strip, DeviceType device) {
  OwnedCall call;
  for (const TensorRef& t : in) call.add_input(t);
  for (const TensorRef& t : out) call.add_output(t);
  call.attrs = Attrs::of(
      AttentionWeightsAttrs{s.attrs.scale, s.attrs.causal, s.attrs.causal_offset, s.attrs.causal ? strip : 0});
  call.stream = current_stream(device);
  return call;
}

// p and ds as parts of wider matrices (`wider` columns more, full of NaN), and ds over p or beside it.
Weights run(const AttentionShape& s, const AttentionInputs& x, int64_t wider, bool in_place, int64_t strip = 0) {
  DeviceType device = x.q.device();
  const KernelTable& kernels = backend_of(device).kernels();
  Dims dims{s.B, s.H, s.Nq, s.Nk + wider};
  auto matrix = [&] { return full(dims, NAN, x.q.dtype(), device); };
  auto rows = [&] { return full(x.q.dims(), NAN, x.q.dtype(), device); };
  auto part = [&](const Tensor& t) { return slice(t, 3, 0, s.Nk); };
  Tensor p = matrix(), o = rows(), dq = rows();
  kernels.attention_weights(call_of(s, {x.q.ref(), x.k.ref(), x.v.ref()}, {part(p).ref(), o.ref()}, strip, device));
  Tensor given = copy(part(p)), ds = in_place ? p : matrix();
  kernels.attention_weights_backward(call_of(s, {x.grad.ref(), x.v.ref(), o.ref(), part(p).ref(), x.k.ref()},
                                             {part(ds).ref(), dq.ref()}, strip, device));
  // TMA writes whole pieces of 16 bytes.
  int64_t beyond = device == DeviceType::cuda && is_16bit(x.q.dtype()) ? (8 - s.Nk % 8) % 8 : 0;
  for (double value : to_vector(slice(ds, 3, s.Nk + beyond, wider - beyond)))
    EXPECT_TRUE(std::isnan(value)) << "beyond its columns";
  return {given, o, copy(part(ds)), dq};
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
    EXPECT_LT(error(to_vector(w.dq), to_vector(matmul(ds, x.k))), 1e-12) << s.text();
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
      if (is_16bit(type) && s.D % 8 != 0) continue;
      AttentionInputs x = random_inputs(s, rng, type), on_gpu = on_device(x, DeviceType::cuda);
      // fp32: rows that begin anywhere, at multiples of 8 and of 16 bytes
      int64_t wider = is_16bit(type) ? 16 - s.Nk % 8 : std::max(0, at % 3 * 4 - at % 2);
      ++at;
      Weights expected = run(s, x, wider, false);
      Weights got = run(s, on_gpu, wider, at % 2);
      double bound = type == DType::f32 ? 2e-6 : type == DType::bf16 ? 6e-3 : 1e-3;
      EXPECT_LT(error(to_vector(got.p), to_vector(expected.p)), bound) << s.text() << " " << name_of(type);
      EXPECT_LT(error(to_vector(got.o), to_vector(expected.o)), bound) << s.text() << " " << name_of(type);
      // Differences of dp and its mean: with few keys little is left of them, which shows
      // where nothing else is rounded.
      double of_scores = (type == DType::f32 ? 10 : 3) * bound;
      EXPECT_LT(error(to_vector(got.ds), to_vector(expected.ds)), of_scores) << s.text() << " " << name_of(type);
      EXPECT_LT(error(to_vector(got.dq), to_vector(expected.dq)), of_scores) << s.text() << " " << name_of(type);
    }
}

// Of a strip of rows p and ds are written as far as its last row sees, in multiples of 64.
TEST(AttentionWeightsGpu, StripsAreWrittenAsFarAsTheySee) {
  SINTER_REQUIRE_GPU();
  Rng rng(34);
  for (int64_t strip : {64, 128, 320})
    for (DType type : {DType::f32, DType::bf16}) {
      AttentionShape s{1, 2, 1, 600, 700, 64, {.scale = 0.1, .causal = true, .causal_offset = 100}};
      AttentionInputs x = random_inputs(s, rng, type);
      Weights expected = run(s, x, 12, false), got = run(s, on_device(x, DeviceType::cuda), 12, false, strip);
      double bound = type == DType::f32 ? 2e-6 : 6e-3;
      for (int64_t row = 0; row < s.Nq; row += strip) {
        int64_t rows = std::min(strip, s.Nq - row), columns = std::min(s.Nk, (row + rows + 100 + 63) / 64 * 64);
        auto seen = [&](const Tensor& t) { return to_vector(copy(slice(slice(t, 2, row, rows), 3, 0, columns))); };
        EXPECT_LT(error(seen(got.p), seen(expected.p)), bound) << strip << " " << row << " " << name_of(type);
        EXPECT_LT(error(seen(got.ds), seen(expected.ds)), 3 * bound) << strip << " " << row << " " << name_of(type);
      }
    }
}

TEST(AttentionWeightsGpu, SameBitsEveryTime) {
  SINTER_REQUIRE_GPU();
  Rng rng(33);
  AttentionShape s{4, 2, 2, 500, 500, 64, {.scale = 0.125, .causal = true}};
  for (DType type : {DType::f32, DType::bf16}) {
    AttentionInputs x = on_device(random_inputs(s, rng, type), DeviceType::cuda);
    Weights first = run(s, x, 4, false);
    for (int i = 0; i < 10; ++i) {
      Weights again = run(s, x, 4, true);
      EXPECT_TRUE(same_bits(first.p, again.p) && same_bits(first.o, again.o) && same_bits(first.ds, again.ds) &&
                  same_bits(first.dq, again.dq));
    }
  }
}

}  // namespace
}  // namespace sinter
