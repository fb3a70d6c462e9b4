// Mixed precision by the policy column of the table: what a kernel reads, what comes out, what type gradients have.
#include <algorithm>

#include "autograd/tape.h"
#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

struct Reads : Interceptor {
  const OpDef* op = nullptr;
  std::vector<DType> types;
  void called(const OpCall& used, TensorPtrs, const Outputs&) override {
    if (&used.op != op) return;
    types.clear();
    for (const Tensor* t : used.inputs) types.push_back(t->dtype());
  }
};

DType widest(const std::vector<DType>& types) {
  DType t = types[0];
  for (DType x : types) t = promote(t, x);
  return t;
}

// What output 0 must be, given the types of the inputs, in words of the policy alone.
DType expected_type(const OpDef& op, const std::vector<DType>& floats, DType lower) {
  switch (op.autocast) {
    case AutocastPolicy::lower: return &op == &ops::linear_weight_grad ? DType::f32 : lower;  // gradients stay wide
    case AutocastPolicy::fp32: return DType::f32;
    case AutocastPolicy::promote: return widest(floats);
    case AutocastPolicy::internal:
      if (&op == &ops::rms_norm) return lower;
      if (&op == &ops::cross_entropy) return DType::f32;
      return floats[0];
    case AutocastPolicy::none: break;
  }
  return floats[0];
}

class OpAutocast : public testing::TestWithParam<OpCase> {};

TEST_P(OpAutocast, TypesFollowThePolicy) {
  const OpCase& c = GetParam();
  bool free_type = c.op->autocast == AutocastPolicy::none;  // tested as without autocast, below
  for (DType lower : {DType::bf16, DType::f16})
    for (DType given : {DType::f32, lower}) {
      SCOPED_TRACE(std::string(name_of(given)) + " under " + name_of(lower));
      std::vector<Tensor> inputs = make_inputs(c, given);
      std::vector<DType> floats;
      for (const Tensor& t : inputs)
        if (is_float(t.dtype())) floats.push_back(t.dtype());
      Reads reads;
      reads.op = c.op;
      Outputs without = call(c, inputs);
      Autocast mixed(lower);
      Listening on(reads);
      Outputs out = call(c, inputs);
      if (free_type) {
        for (int j = 0; j < out.n; ++j) EXPECT_EQ(out[j].dtype(), without[j].dtype());
        continue;
      }
      EXPECT_STREQ(name_of(out[0].dtype()), name_of(expected_type(*c.op, floats, lower)));
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!is_float(inputs[i].dtype())) continue;
        DType read = c.op->autocast == AutocastPolicy::lower  ? lower
                     : c.op->autocast == AutocastPolicy::fp32 ? DType::f32
                                                              : inputs[i].dtype();
        EXPECT_STREQ(name_of(reads.types[i]), name_of(read)) << "input " << i;
      }
    }
}

TEST_P(OpAutocast, Float64IsLeftAlone) {
  const OpCase& c = GetParam();
  if (c.op == &ops::cast) return;  // names its type itself
  Autocast mixed(DType::bf16);
  Outputs out = call(c, make_inputs(c, DType::f64));
  for (int j = 0; j < out.n; ++j) EXPECT_EQ(out[j].dtype(), DType::f64);
}

TEST_P(OpAutocast, GradientsHaveTheTypeOfTheLeafAndAreRight) {
  const OpCase& c = GetParam();
  if (!c.op->grad) return;
  for (DType lower : {DType::bf16, DType::f16})
    for (DType leaf : {DType::f32, lower}) {
      SCOPED_TRACE(std::string(name_of(leaf)) + " under " + name_of(lower));
      std::vector<Tensor> inputs = make_inputs(c, leaf), weights;
      {
        Autocast mixed(lower);
        weights = make_weights(c, call(c, inputs));
      }
      std::vector<Tensor> exact = gradients(c, as_f64(inputs), as_f64(weights)), grads;
      {
        Autocast mixed(lower);
        grads = gradients(c, inputs, weights);
      }
      for (size_t i = 0; i < grads.size(); ++i) {
        if (!grads[i].defined()) continue;
        EXPECT_STREQ(name_of(grads[i].dtype()), name_of(leaf)) << "input " << i;
        EXPECT_LE(normwise_error(to_vector(grads[i]), to_vector(exact[i])),
                  gradient_bound(roundoff(lower), exact[i], weights))
            << "input " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Table, OpAutocast, testing::ValuesIn(sample_cases()), case_name);

// The toy network of the autocast experiment: fc1, ReLU, LayerNorm, fc2.
TEST(Autocast, ToyNetwork) {
  for (DType lower : {DType::f16, DType::bf16}) {
    Rng rng(1);
    Tensor x = random_tensor(rng, {4, 6}, DType::f32), fc1 = random_tensor(rng, {10, 6}, DType::f32);
    Tensor w = random_tensor(rng, {10}, DType::f32), b = random_tensor(rng, {10}, DType::f32);
    Tensor fc2 = random_tensor(rng, {5, 10}, DType::f32);
    for (const Tensor& p : {fc1, w, b, fc2}) require_grad(p);
    Tensor targets = from_vector<int64_t>({0, 4, 2, 1}, {4}, DeviceType::cpu), loss;
    {
      Autocast mixed(lower);
      Tensor h = linear(x, fc1), r = relu(h), n = layer_norm(r, w, b), logits = linear(n, fc2);
      EXPECT_EQ(h.dtype(), lower);
      EXPECT_EQ(r.dtype(), lower);
      EXPECT_EQ(n.dtype(), DType::f32);
      EXPECT_EQ(logits.dtype(), lower);
      loss = cross_entropy(logits, targets);
      EXPECT_EQ(loss.dtype(), DType::f32);
    }
    backward(loss);
    for (const Tensor& p : {fc1, w, b, fc2}) EXPECT_EQ(grad_of(p).dtype(), DType::f32);
  }
}

TEST(Autocast, TwoTypesMeetInTheWider) {
  Rng rng(1);
  Tensor wide = random_tensor(rng, {4}, DType::f32), narrow = random_tensor(rng, {4}, DType::bf16);
  Autocast mixed(DType::bf16);
  EXPECT_EQ(add(wide, narrow).dtype(), DType::f32);
  EXPECT_EQ(add(narrow, wide).dtype(), DType::f32);
  EXPECT_EQ(add(narrow, narrow).dtype(), DType::bf16);
}

TEST(Autocast, ProductsOfTwoTypesNeedIt) {
  Rng rng(1);
  Tensor x = random_tensor(rng, {2, 4}, DType::f32), w = random_tensor(rng, {3, 4}, DType::bf16);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { linear(x, w); }), {"linear", "fp32", "bf16", "autocast"}));
  Autocast mixed(DType::bf16);
  EXPECT_EQ(linear(x, w).dtype(), DType::bf16);
}

// A parameter used with its 16-bit copy: no cast runs, and the gradient reaches the master in fp32.
TEST(Autocast, LeafWithoutCopyIsCastOnTheTape) {
  Rng rng(1);
  Tensor x = random_tensor(rng, {2, 4}, DType::f32), w = random_tensor(rng, {3, 4}, DType::f32);
  require_grad(w);
  Tensor y;
  {
    Autocast mixed(DType::bf16);
    y = linear(x, w);
  }
  backward(sum(y));
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  Values expected;
  for (int o = 0; o < 3; ++o)
    for (int i = 0; i < 4; ++i) {
      Values v = to_vector(cast(x, DType::bf16));
      expected.push_back(v[size_t(i)] + v[size_t(4 + i)]);
    }
  EXPECT_TRUE(near(to_vector(grad_of(w)), expected, 1e-2, 0));
}

}  // namespace
}  // namespace sinter
