// Every kernel on the GPU against float64 on the CPU, on the same values: contiguous, strided, accumulating, twice.
#include "support/gpu.h"

#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

constexpr DeviceType cuda = DeviceType::cuda;
constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};
// Of the largest element: fp32 sums in another order, and attention's probabilities, which
// the tensor cores take in 16 bits.
double inside_of(const OpCase& c, DType type) {
  return c.op == &ops::attention && is_16bit(type) ? 4 * roundoff(type) : 1e-5;
}

class OpGpu : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override { SINTER_REQUIRE_GPU(); }
};

TEST_P(OpGpu, MatchesCpu) {
  const OpCase& c = GetParam();
  for (DType type : types) {
    SCOPED_TRACE(name_of(type));
    std::vector<Tensor> inputs = make_inputs(c, type);
    Outputs cpu = call(c, inputs), exact = call(c, as_f64(inputs)), gpu = call(c, on_device(inputs, cuda));
    for (int j = 0; j < gpu.n; ++j) {
      EXPECT_EQ(gpu[j].dtype(), cpu[j].dtype());
      EXPECT_EQ(gpu[j].strides(), cpu[j].strides());
      EXPECT_TRUE(near(gpu[j], exact[j], 1.01 * roundoff(gpu[j].dtype()), inside_of(c, type))) << "output " << j;
    }
  }
}

TEST_P(OpGpu, SameBitsTwice) {
  const OpCase& c = GetParam();
  for (DType type : types) {
    std::vector<Tensor> inputs = on_device(make_inputs(c, type), cuda);
    Outputs one = call(c, inputs), two = call(c, inputs);
    for (int j = 0; j < one.n; ++j) EXPECT_TRUE(same_bits(one[j], two[j])) << name_of(type) << ", output " << j;
  }
}

TEST_P(OpGpu, StridedInputsGiveTheSame) {
  const OpCase& c = GetParam();
  for (DType type : types) {
    std::vector<Tensor> inputs = on_device(make_inputs(c, type), cuda);
    Outputs expected = call(c, inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      for (Layout layout : layouts_for(inputs[i].rank())) {
        SCOPED_TRACE(std::string(name_of(type)) + ", input " + std::to_string(i) + " " + name_of(layout));
        std::vector<Tensor> strided = inputs;
        strided[i] = with_layout(inputs[i], layout);
        Outputs out = call(c, strided);
        for (int j = 0; j < out.n; ++j)
          EXPECT_TRUE(near(out[j], expected[j], 2 * roundoff(out[j].dtype()), inside_of(c, type))) << "output " << j;
      }
  }
}

TEST_P(OpGpu, AddsToADestination) {
  const OpCase& c = GetParam();
  for (DType type : types) {
    std::vector<Tensor> inputs = make_inputs(c, type), on_gpu = on_device(inputs, cuda);
    Outputs exact = call(c, as_f64(inputs)), plain = call(c, on_gpu);
    for (int j = 0; j < plain.n; ++j) {
      if (!(c.op->accumulates >> j & 1)) continue;
      std::vector<DType> into{plain[j].dtype()};
      if ((c.op->writes_any_float | c.op->writes_fp32) >> j & 1) into.push_back(DType::f32);
      for (DType t : into) {
        SCOPED_TRACE(std::string(name_of(type)) + " into " + name_of(t) + ", output " + std::to_string(j));
        Rng rng(5);
        Tensor start = random_tensor(rng, plain[j].dims(), t), to_add = to(start, cuda);
        Values expected = to_vector(c.op == &ops::cast ? as_f64(inputs)[0] : exact[j]), before = to_vector(start);
        Destination d;
        d.out[size_t(j)] = &to_add;
        d.accumulate = 1u << j;
        call(c, on_gpu, &d);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
        double rounding = 1.01 * roundoff(t);
        EXPECT_TRUE(near(to_vector(to_add), expected, rounding, inside_of(c, type) + (is_16bit(t) ? 2 * rounding : 0)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpGpu, testing::ValuesIn(kernel_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Larger, OpGpu, testing::ValuesIn(larger_cases()), case_name);

class GradientGpu : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override { SINTER_REQUIRE_GPU(); }
};

TEST_P(GradientGpu, MatchesCpu) {
  const OpCase& c = GetParam();
  for (DType type : types) {
    SCOPED_TRACE(name_of(type));
    std::vector<Tensor> inputs = make_inputs(c, type), weights = make_weights(c, call(c, inputs));
    std::vector<Tensor> exact = gradients(c, as_f64(inputs), as_f64(weights));
    std::vector<Tensor> grads = gradients(c, on_device(inputs, cuda), weights);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      EXPECT_EQ(grads[i].dtype(), type);
      EXPECT_LE(normwise_error(to_vector(grads[i]), to_vector(exact[i])),
                gradient_bound(roundoff(type), exact[i], weights))
          << "input " << i;
    }
  }
}

TEST_P(GradientGpu, MatchesCpuUnderAutocast) {
  const OpCase& c = GetParam();
  for (DType lower : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(lower));
    std::vector<Tensor> inputs = make_inputs(c, DType::f32), weights;
    {
      Autocast mixed(lower);
      weights = make_weights(c, call(c, inputs));
    }
    std::vector<Tensor> exact = gradients(c, as_f64(inputs), as_f64(weights));
    Autocast mixed(lower);
    std::vector<Tensor> grads = gradients(c, on_device(inputs, cuda), weights);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      EXPECT_EQ(grads[i].dtype(), DType::f32);
      EXPECT_LE(normwise_error(to_vector(grads[i]), to_vector(exact[i])),
                gradient_bound(roundoff(lower), exact[i], weights))
          << "input " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, GradientGpu, testing::ValuesIn(differentiable_cases()), case_name);

}  // namespace
}  // namespace sinter
