// Numbers of steps that are read later, and numbers that are not finite.
#include "train/step_readings.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/error.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "support/gpu.h"
#include "train/not_finite.h"

namespace sinter {
namespace {

ModelConfig small() {
  ModelConfig c{.name = "custom", .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  c.vocab = 20, c.ctx = 8;
  return c;
}

Batch batch(uint64_t seed) { return random_batch(2, 8, 20, seed, DeviceType::cpu); }

TEST(StepReadingsGpu, AreReadLate) {
  SINTER_REQUIRE_GPU();
  TrainerOptions o;
  o.device = DeviceType::cuda;
  o.optimizer = make_adamw({{.learning_rate = 1e-2, .max_norm = 0.5}});
  o.compiled.emplace();
  Trainer late(small(), o, make_transformer), other(small(), o, make_transformer);
  StepReadings readings(DeviceType::cuda);
  readings.restart();
  std::vector<double> losses, expected;
  for (int64_t step = 0; step < 8; ++step) {
    Batch b = random_batch(2, 8, 20, uint64_t(step), DeviceType::cuda);
    late.optimizer().set_learning_rate(1e-2 / double(step + 1));
    readings.submit(step, late.run(Pass::step, b), late.optimizer(), false, nullptr);
    if (readings.under_way() > 1) losses.push_back(readings.take().loss);
    expected.push_back(other.step(b, 1e-2 / double(step + 1)));
  }
  losses.push_back(readings.take().loss);
  EXPECT_EQ(losses, expected);
}

class Steps : public testing::TestWithParam<bool> {
 protected:
  static TrainerOptions options() {
    TrainerOptions o;
    o.optimizer = make_adamw({{.learning_rate = 1e-2, .max_norm = 0.5}});
    if (GetParam()) o.compiled.emplace();
    return o;
  }
  Trainer trainer_{small(), options(), make_transformer};
};

// Each reading has its own step's numbers, however many were submitted since.
TEST_P(Steps, AreReadLate) {
  Trainer other(small(), options(), make_transformer);
  StepReadings readings(DeviceType::cpu);
  readings.restart();
  std::vector<Reading> all;
  std::vector<double> losses, norms;
  for (int64_t step = 0; step < 5; ++step) {
    Batch b = batch(uint64_t(step));
    readings.submit(step, trainer_.run(Pass::step, b), trainer_.optimizer(), step == 3, nullptr);
    if (readings.under_way() > 1) all.push_back(readings.take());
    losses.push_back(other.step(b, 1e-2));
    norms.push_back(other.optimizer().state()[state_grad_norm]);
  }
  all.push_back(readings.take());
  ASSERT_EQ(all.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(all[i].step, int64_t(i));
    EXPECT_EQ(all[i].loss, losses[i]);
    EXPECT_EQ(all[i].gradient_norm, norms[i]);
    EXPECT_EQ(all[i].stop, i == 3);
    EXPECT_EQ(all[i].skipped, 0);
    EXPECT_GT(all[i].seconds, 0);
  }
  EXPECT_THROW(readings.take(), Error);
}

TEST_P(Steps, NameWhatIsNotFiniteFirst) {
  std::vector<Batch> batches = {batch(1), batch(2)};
  trainer_.run(Pass::step, batches);
  EXPECT_TRUE(parameters_are_finite(trainer_.parameters()));
  EXPECT_EQ(first_not_finite(trainer_, batches), "");
  // Finite, but what is multiplied with it is not.
  const Parameters::Entry& entry = trainer_.parameters().find("layers.1.ffn.w1.weight");
  Tensor old = copy(entry.value);
  trainer_.parameters().load("master", entry.name, full(entry.dims, 3e38, DType::f32, DeviceType::cpu));
  EXPECT_TRUE(parameters_are_finite(trainer_.parameters()));
  std::string found = first_not_finite(trainer_, batches);
  EXPECT_NE(found.find("the output of "), std::string::npos) << found;
  EXPECT_NE(found.find("forward/layers.1/ffn"), std::string::npos) << found;
  EXPECT_NE(found.find("micro-batch 1"), std::string::npos) << found;
  // Its update was held back: the gradient's norm is not finite.
  std::vector<double> before = to_vector(trainer_.parameters().master());
  trainer_.run(Pass::step, batches);
  EXPECT_EQ(to_vector(trainer_.parameters().master()), before);
  trainer_.parameters().load("master", entry.name, full(entry.dims, NAN, DType::f32, DeviceType::cpu));
  EXPECT_FALSE(parameters_are_finite(trainer_.parameters()));
  EXPECT_EQ(first_not_finite(trainer_, batches), "the parameter " + entry.name);
  trainer_.parameters().load("master", entry.name, old);
  EXPECT_EQ(first_not_finite(trainer_, batches), "");
}

INSTANTIATE_TEST_SUITE_P(Modes, Steps, testing::Bool(),
                         [](const auto& info) { return info.param ? "Compiled" : "Eager"; });

}  // namespace
}  // namespace sinter
