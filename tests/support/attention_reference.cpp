#include "support/attention_reference.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/ops.h"

namespace sinter {
namespace {

Tensor repeat_heads(const Tensor& x, int64_t group) {
  if (group == 1) return x;
  int64_t B = x.size(0), H = x.size(1), N = x.size(2), D = x.size(3);
  return reshape(contiguous(expand(reshape(x, {B, H, 1, N, D}), {B, H, group, N, D})), {B, H * group, N, D});
}

double largest_error(const Values& a, const Values& e) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    most = std::max(most, std::abs(a[i] - e[i]));
  }
  return most;
}

void want_gradients(const AttentionInputs& x) {
  for (const Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t), zero_grad(*t);
}

}  // namespace

std::string AttentionShape::text() const {
  return fmt::format("B {} H {}/{} Nq {} Nk {} D {} {} offset {}{}", B, H, Hkv, Nq, Nk, D,
                     attrs.causal ? "causal" : "full", attrs.causal_offset,
                     attrs.kernel == AttentionKernel::tiled ? fmt::format(" tiled {}", attrs.tile) : "");
}
AttentionShape AttentionShape::tiled(int32_t tile) const {
  AttentionShape s = *this;
  s.attrs.kernel = AttentionKernel::tiled;
  s.attrs.tile = tile;
  return s;
}

AttentionShape random_attention(Rng& rng) {
  AttentionShape s;
  s.B = integer(rng, 1, 3), s.Hkv = integer(rng, 1, 3), s.H = s.Hkv * integer(rng, 1, 4);
  s.Nq = integer(rng, 1, 3) == 1 ? integer(rng, 1, 9) : integer(rng, 1, 300);
  s.Nk = integer(rng, 0, 2) ? s.Nq : integer(rng, 1, 600);
  s.D = integer(rng, 1, 97);
  s.attrs.scale = 1 / std::sqrt(double(s.D));
  s.attrs.causal = integer(rng, 0, 3) > 0;
  if (s.attrs.causal && integer(rng, 0, 2))
    s.attrs.causal_offset = integer(rng, 0, 2) ? s.Nk - s.Nq : integer(rng, -20, 20);
  return s;
}

AttentionInputs random_inputs(const AttentionShape& s, Rng& rng, DType type, double size) {
  auto tensor = [&](int64_t heads, int64_t n) {
    Values x = normals(rng, s.B * heads * n * s.D);
    for (double& value : x) value *= size;
    return tensor_of(x, {s.B, heads, n, s.D}, type);
  };
  return {tensor(s.H, s.Nq), tensor(s.Hkv, s.Nk), tensor(s.Hkv, s.Nk), tensor(s.H, s.Nq)};
}
AttentionInputs cast_to(const AttentionInputs& x, DType type) {
  return {cast(x.q, type).detach(), cast(x.k, type).detach(), cast(x.v, type).detach(), cast(x.grad, type).detach()};
}
AttentionInputs on_device(const AttentionInputs& x, DeviceType device) {
  return {to(x.q, device).detach(), to(x.k, device).detach(), to(x.v, device).detach(), to(x.grad, device).detach()};
}

AttentionInputs among_nans(const AttentionInputs& x, int64_t shift) {
  auto surrounded = [&](const Tensor& t) {
    int64_t B = t.size(0), H = t.size(1), N = t.size(2), D = t.size(3);
    int64_t head = (D + 15) / 8 * 8, row = (H + 1) * head, batch = (N + 2) * row;
    Tensor space = full({B * batch + 64}, NAN, t.dtype(), t.device());
    Tensor view = make_view(space, {B, H, N, D}, {batch, head, row, 1}, row + 16 + shift);
    copy_into(view, t.detach());
    return view.detach();
  };
  return {surrounded(x.q), surrounded(x.k), surrounded(x.v), surrounded(x.grad)};
}

AttentionResults spelled_out(const AttentionShape& s, const AttentionInputs& x) {
  want_gradients(x);
  int64_t group = s.H / s.Hkv;
  Tensor scores = matmul(x.q, repeat_heads(x.k, group), false, true);
  Tensor p = softmax(scores, {s.attrs.scale, s.attrs.causal, s.attrs.causal_offset});
  Tensor o = matmul(p, repeat_heads(x.v, group));
  backward(o, x.grad);
  AttentionResults r{to_vector(o), {}, to_vector(grad_of(x.q)), to_vector(grad_of(x.k)), to_vector(grad_of(x.v))};
  Values all = to_vector(scores);
  for (int64_t row = 0; row < s.B * s.H * s.Nq; ++row) {
    int64_t n = s.attrs.causal ? std::clamp<int64_t>(row % s.Nq + s.attrs.causal_offset + 1, 0, s.Nk) : s.Nk;
    double m = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; ++j) m = std::max(m, s.attrs.scale * all[size_t(row * s.Nk + j)]);
    for (int64_t j = 0; j < n; ++j) sum += std::exp(s.attrs.scale * all[size_t(row * s.Nk + j)] - m);
    r.lse.push_back(n ? m + std::log(sum) : -INFINITY);
  }
  return r;
}

AttentionResults by_the_op(const AttentionShape& s, const AttentionInputs& x) {
  want_gradients(x);
  Tensor lse, o = attention(x.q, x.k, x.v, s.attrs, &lse);
  backward(o, x.grad);
  return {to_vector(o), to_vector(lse), to_vector(grad_of(x.q)), to_vector(grad_of(x.k)), to_vector(grad_of(x.v))};
}

void expect_close(const AttentionResults& a, const AttentionResults& e, double bound, const std::string& what,
                  double absolute) {
  auto near = [&](const Values& x, const Values& exact) {
    EXPECT_LE(error(x, exact), norm(exact) > 0 ? bound : std::max(bound, absolute)) << what;
  };
  near(a.o, e.o), near(a.dq, e.dq), near(a.dk, e.dk), near(a.dv, e.dv);
  ASSERT_EQ(a.lse.size(), e.lse.size());
  for (size_t i = 0; i < a.lse.size(); ++i) {
    if (std::isinf(e.lse[i])) {
      EXPECT_EQ(a.lse[i], e.lse[i]) << what;
    } else {
      EXPECT_NEAR(a.lse[i], e.lse[i], 1e-5) << what;
    }
  }
}

double error(const Values& a, const Values& e) { return norm(e) > 0 ? normwise_error(a, e) : norm(a); }

void expect_fair(const AttentionResults& a, const AttentionResults& naive, const AttentionResults& e,
                 const std::string& what, double luck) {
  auto fair = [&](const Values& x, const Values& y, const Values& exact) {
    double few = exact.size() < 1000 ? luck * norm(exact) / std::sqrt(double(exact.size())) : 0;
    return largest_error(x, exact) <= 2 * largest_error(y, exact) + 1e-5 + few;
  };
  EXPECT_TRUE(fair(a.o, naive.o, e.o)) << "o: " << what;
  EXPECT_TRUE(fair(a.dq, naive.dq, e.dq)) << "dq: " << what;
  EXPECT_TRUE(fair(a.dk, naive.dk, e.dk)) << "dk: " << what;
  EXPECT_TRUE(fair(a.dv, naive.dv, e.dv)) << "dv: " << what;
}

}  // namespace sinter
