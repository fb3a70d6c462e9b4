// The rules of the tape: who gets a gradient, when, where, and what is refused.
#include "autograd/tape.h"

#include <cmath>

#include "support/values.h"

namespace sinter {
namespace {

Tensor leaf(const Values& v, const Dims& dims, DType type = DType::f64) {
  Tensor t = tensor_of(v, dims, type);
  require_grad(t);
  return t;
}

TEST(Tape, AccumulatesOverPassesUntilZeroed) {
  Tensor x = leaf({1, 2, 3}, {3});
  backward(sum(square(x)));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{2, 4, 6}));
  backward(sum(square(x)));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{4, 8, 12}));
  zero_grad(x);
  EXPECT_FALSE(grad_of(x).defined());
  backward(sum(x));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{1, 1, 1})) << "the first contribution overwrites";
}

TEST(Tape, WritesIntoAGivenBuffer) {
  Tensor x = leaf({1, 2}, {2}), flat = full({10}, NAN, DType::f64, DeviceType::cpu);
  leaf_of(x)->grad = slice(flat, 0, 4, 2);
  backward(sum(square(x)));
  Values v = to_vector(flat);
  EXPECT_EQ(v[4], 2);
  EXPECT_EQ(v[5], 4);
  EXPECT_TRUE(std::isnan(v[3]) && std::isnan(v[6])) << "and nowhere else";
}

TEST(Tape, HooksFireOnceWhenTheGradientIsComplete) {
  Tensor x = leaf({1, 2}, {2}), y = leaf({3, 4}, {2});
  int x_calls = 0, y_calls = 0;
  Values seen;
  leaf_of(x)->hooks.push_back([&](Leaf& l) {
    ++x_calls;
    seen = to_vector(l.grad);
  });
  leaf_of(y)->hooks.push_back([&](Leaf&) { ++y_calls; });
  backward(sum(mul(x, y) + square(x) + x));  // three uses of x: y + 2x + 1
  EXPECT_EQ(x_calls, 1);
  EXPECT_EQ(y_calls, 1);
  EXPECT_EQ(seen, (Values{6, 9})) << "after all contributions";
  backward(sum(x));
  EXPECT_EQ(x_calls, 2);
  EXPECT_EQ(y_calls, 1) << "not in a pass it takes no part in";
}

TEST(Tape, HooksOfLaterLayersFireFirst) {
  Tensor w1 = leaf({1}, {1}), w2 = leaf({1}, {1}), tied = leaf({2}, {1});
  std::string order;
  leaf_of(w1)->hooks.push_back([&](Leaf&) { order += "1"; });
  leaf_of(w2)->hooks.push_back([&](Leaf&) { order += "2"; });
  leaf_of(tied)->hooks.push_back([&](Leaf&) { order += "t"; });
  Tensor h = mul(tied, w1);
  backward(mul(mul(h, w2), tied));  // used first and last: complete only at the end
  EXPECT_EQ(order.substr(0, 1), "2");
  EXPECT_EQ(order.size(), 3u);
  EXPECT_LT(order.find('2'), order.find('t'));
}

TEST(Tape, NoGradRecordsNothing) {
  Tensor x = leaf({1, 2}, {2});
  {
    NoGrad off;
    EXPECT_FALSE(square(x).requires_grad());
  }
  EXPECT_TRUE(square(x).requires_grad());
  EXPECT_FALSE(square(x.detach()).requires_grad());
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(sum(square(x.detach()))); }),
                       {"backward", "requires a gradient"}));
}

TEST(Tape, ChangesInPlaceAreDetected) {
  Tensor x = leaf({1, 2}, {2}), c = tensor_of({3, 4}, {2}, DType::f64);
  Tensor y = sum(mul(x, c));
  fill(c, 0);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(y); }), {"mul", "changed in place"}));
}

TEST(Tape, ChangesInPlaceOfSavedOutputsAreDetected) {
  Tensor x = leaf({1, 2}, {2});
  Tensor y = exp(x), loss = sum(y);
  fill(y.detach(), 0);  // exp's gradient reads its output
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(loss); }), {"exp", "changed in place"}));
}

// Note [Recomputation]: cheap results are not kept, but made anew from what they were made of.
TEST(Tape, ChangesInPlaceOfWhatIsComputedAgainAreDetected) {
  Tensor x = leaf({1, 2}, {2}), c = tensor_of({3, 4}, {2}, DType::f64);
  Tensor h = affine(x, 1, 0), loss = sum(mul(silu(h), c));
  fill(h.detach(), 0);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(loss); }), {"changed in place"}));
}

TEST(Tape, CheapResultsAreNotKept) {
  Tensor x = leaf(Values(100000, 0.5), {1000, 100}), w = leaf(Values(100, 1.0), {100});
  auto held_by = [&](const std::function<Tensor()>& forward) {
    int64_t before = allocator_of(DeviceType::cpu).stats().allocated;
    Tensor y = forward();
    int64_t after = allocator_of(DeviceType::cpu).stats().allocated;
    backward(sum(y));
    return after - before;
  };
  int64_t full_size = 800000;
  Tensor c = tensor_of(Values(100000, 2.0), {1000, 100}, DType::f64);
  // The result of mul, and the norm's statistics; the norm's result is gone.
  EXPECT_LT(held_by([&] { return mul(rms_norm(x, w), c); }), full_size * 3 / 2);
  double r = 1 / std::sqrt(0.25 + 1e-5);  // of a constant row only eps leaves a slope
  for (double g : to_vector(grad_of(x))) ASSERT_NEAR(g, 2 * r * (1 - 0.25 * r * r), 1e-12);
}

TEST(Tape, ChangesOfWhatIsNotSavedAreFine) {
  Tensor x = leaf({1, 2}, {2}), c = tensor_of({3, 4}, {2}, DType::f64);
  Tensor y = sum(x + c);
  fill(c, 0);
  backward(y);
  EXPECT_EQ(to_vector(grad_of(x)), (Values{1, 1}));
}

TEST(Tape, AGraphIsUsedOnce) {
  Tensor x = leaf({1, 2}, {2}), y = sum(square(x));
  backward(y);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(y); }), {"backward", "forward pass again"}));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{2, 4})) << "and the gradient is as it was";
}

// A refused pass must leave nothing half-counted behind: the next one is complete.
TEST(Tape, ARefusedPassDoesNotDisturbTheNext) {
  Tensor x = leaf({1, 2}, {2});
  int calls = 0;
  leaf_of(x)->hooks.push_back([&](Leaf&) { ++calls; });
  Tensor shared = square(x);
  backward(sum(shared));
  Tensor again = sum(mul(shared, x));  // reaches back into the used-up part
  EXPECT_THROW(backward(again), Error);
  zero_grad(x);
  calls = 0;
  backward(sum(x));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(to_vector(grad_of(x)), (Values{1, 1}));
}

TEST(Tape, SeedsMustFit) {
  Tensor x = leaf({1, 2, 3}, {3});
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(square(x)); }), {"(3)", "seed"}));
  Tensor wrong = tensor_of({1, 1}, {2}, DType::f64);
  EXPECT_THROW(backward(square(x), wrong), Error);
  backward(square(x), tensor_of({1, 10, 100}, {3}, DType::f64));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{2, 40, 600}));
}

TEST(Tape, TheSeedIsNotChanged) {
  Tensor x = leaf({1, 2}, {2}), seed = tensor_of({1, 10}, {2}, DType::f64);
  backward(x + x + x, seed);
  EXPECT_EQ(to_vector(seed), (Values{1, 10}));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{3, 30}));
}

TEST(Tape, OnlyLeavesOwnGradients) {
  Tensor x = leaf({1}, {1}), y = square(x);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { require_grad(y); }), {"square", "detach()"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { grad_of(y); }), {"not a leaf"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { backward(x); }), {"leaf"}));
  Tensor ids = from_vector<int64_t>({1}, {1}, DeviceType::cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { require_grad(ids); }), {"int64"}));
  EXPECT_EQ(&require_grad(x), leaf_of(x)) << "twice is once";
}

TEST(Tape, UnusedOutputsCountAsZero) {
  Tensor qkv = leaf(Values(24, 1.0), {1, 2, 12});
  Tensor cos = full({2, 2}, 1, DType::f64, DeviceType::cpu), sin = zeros({2, 2}, DType::f64, DeviceType::cpu);
  Heads h = split_heads(qkv, cos, sin, {1, 1, true});
  backward(sum(h.k));
  Values g = to_vector(grad_of(qkv));
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(g[i], i % 12 >= 4 && i % 12 < 8 ? 1 : 0) << i;
}

// add hands one and the same gradient to both inputs; a later contribution to one must not reach the other.
TEST(Tape, SharedGradientsStayApart) {
  Tensor x = leaf({1, 2}, {2}), y = leaf({3, 4}, {2});
  Tensor a = affine(x, 1, 0), b = affine(y, 1, 0);
  Tensor more = affine(a, 10, 0), again = affine(b, 100, 0), ones = tensor_of({1, 1}, {2}, DType::f64);
  backward(mul(a + b, ones) + more + again, ones);
  EXPECT_EQ(to_vector(grad_of(x)), (Values{11, 11}));
  EXPECT_EQ(to_vector(grad_of(y)), (Values{101, 101}));
}

// The same where the later contribution is written by a kernel of its own rather than added afterwards.
TEST(Tape, KernelsDoNotAddToSharedGradients) {
  Tensor x = leaf({1, 2}, {2}), y = leaf({3, 4}, {2}), ones = tensor_of({1, 1}, {2}, DType::f64);
  Tensor a = affine(x, 1, 0), b = affine(y, 1, 0), more = relu(a);
  backward(mul(a + b, ones) + more, ones);
  EXPECT_EQ(to_vector(grad_of(x)), (Values{2, 2}));
  EXPECT_EQ(to_vector(grad_of(y)), (Values{1, 1}));
}

// The same through views: a reshaped gradient is the same memory.
TEST(Tape, ViewsOfSharedGradientsStayApart) {
  Tensor x = leaf({1, 2, 3, 4}, {2, 2}), y = leaf({1, 2, 3, 4}, {4});
  Tensor a = affine(x, 1, 0), b = affine(y, 1, 0), more = reshape(affine(a, 10, 0), {4});
  Tensor ones = tensor_of({1, 1, 1, 1}, {4}, DType::f64);
  backward(mul(reshape(a, {4}) + b, ones) + more, ones);
  EXPECT_EQ(to_vector(grad_of(x)), (Values{11, 11, 11, 11}));
  EXPECT_EQ(to_vector(grad_of(y)), (Values{1, 1, 1, 1}));
}

// One backward kernel with several gradients that go to the same place.
TEST(Tape, OneTensorAsSeveralInputs) {
  for (bool is_leaf : {true, false}) {
    Values v{0.5, 1, 2, -1};
    Tensor x = tensor_of({1, -2, 3, 0.5}, {4}, DType::f64), w = leaf(v, {4}), b = leaf(v, {4}), twice = leaf(v, {4});
    auto at = [&](const Tensor& t) { return is_leaf ? t : affine(t, 1, 0); };
    backward(sum(layer_norm(x, at(w), at(b))));
    Values expected = to_vector(grad_of(w) + grad_of(b));
    leaf_of(twice)->grad = full({4}, NAN, DType::f64, DeviceType::cpu);  // as a parameter's, to be overwritten
    for (int pass = 1; pass <= 2; ++pass) {
      Tensor both = at(twice);
      backward(sum(layer_norm(x, both, both)));
      EXPECT_TRUE(near(to_vector(affine(grad_of(twice), 1.0 / pass, 0)), expected, 0, 1e-14)) << is_leaf << pass;
    }
  }
  Tensor x = leaf({1, -2, 3, 0.5}, {4}), a = leaf({1, -2, 3, 0.5}, {4}), w = leaf({1, -2, 3, 0.5}, {4});
  leaf_of(x)->grad = full({4}, NAN, DType::f64, DeviceType::cpu);
  backward(sum(square(rms_norm(x, x))));
  backward(sum(square(rms_norm(a, w))));
  EXPECT_TRUE(near(grad_of(x), grad_of(a) + grad_of(w), 0, 1e-13));
}

TEST(Tape, ReleasesSavedMemoryAsItGoes) {
  int64_t before = allocator_of(DeviceType::cpu).stats().allocated;
  {
    Tensor x = leaf(Values(1000, 0.5), {1000});
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = tanh(y);
    Tensor loss = sum(y);
    y = {};
    int64_t held = allocator_of(DeviceType::cpu).stats().allocated - before;
    EXPECT_GE(held, 20 * 8000);
    backward(loss);
    int64_t after = allocator_of(DeviceType::cpu).stats().allocated - before;
    EXPECT_LE(after, 3 * 8192 + 1024) << "x, its gradient and the loss remain";
  }
  EXPECT_EQ(allocator_of(DeviceType::cpu).stats().allocated, before) << "no cycle keeps anything alive";
}

TEST(Tape, GraphsThatAreNeverUsedAreFreed) {
  int64_t before = allocator_of(DeviceType::cpu).stats().allocated;
  {
    Tensor x = leaf(Values(1000, 0.5), {1000});
    Tensor y = exp(sigmoid(softmax(x)));
  }
  EXPECT_EQ(allocator_of(DeviceType::cpu).stats().allocated, before);
}

TEST(Tape, LongChainsDoNotOverflowTheStack) {
  Tensor x = leaf({0.5}, {1});
  {
    Tensor y = x;
    for (int i = 0; i < 5000; ++i) y = affine(y, 1, 0);
    backward(y);
    EXPECT_EQ(to_vector(grad_of(x)), (Values{1}));
    y = x;
    for (int i = 0; i < 300000; ++i) y = affine(y, 1, 0);  // dropped without backward
  }
}

}  // namespace
}  // namespace sinter
