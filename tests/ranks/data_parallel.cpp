// Ranks with parts of a batch against one process with all of it.
#include "dist/data_parallel.h"

#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nn/transformer.h"
#include "ops/ops.h"
#include "ranks/small_model.h"
#include "ranks/world.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct Setting {
  bool compiled = false;
  std::string dtype = "fp32";
  MakeOptimizer optimizer = make_sgd({{.learning_rate = 0.1}});
  dist::DataParallelOptions data_parallel;
  int64_t micro_batches = 1;
  MakeModel model = make_transformer;
};

TrainerOptions options_of(const Setting& s, ProcessGroup* group) {
  TrainerOptions o;
  o.precision = precision_named(s.dtype);
  // Ranks begin with different parameters: rank 0's must reach them.
  o.seed = group ? uint64_t(group->rank()) : 0;
  o.optimizer = s.optimizer;
  o.group = group;
  o.data_parallel = s.data_parallel;
  o.device = test_device();
  if (s.compiled) o.compiled = compile::CompileOptions{};
  return o;
}

struct Trained {
  std::vector<std::vector<double>> parameters;
  std::vector<double> losses;
};

// Ranks take consecutive parts of the batch, and micro-batches of their part.
Trained train(const Setting& s, ProcessGroup* group, int64_t steps, int ranks) {
  Trainer trainer(small_model(), options_of(s, group), s.model);
  Trained result;
  int64_t count = group ? per_rank : per_rank * ranks, first = group ? group->rank() * per_rank : 0;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Batch> batches;
    for (int64_t m = 0; m < s.micro_batches; ++m)
      batches.push_back(sequences(step * s.micro_batches + m, first, count));
    result.losses.push_back(trainer.step(batches, 0.1));
  }
  for (const auto& e : trainer.parameters().entries()) result.parameters.push_back(to_vector(e.value));
  return result;
}

void expect_close(const Trained& a, const Trained& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t p = 0; p < a.parameters.size(); ++p)
    for (size_t i = 0; i < a.parameters[p].size(); ++i)
      ASSERT_NEAR(a.parameters[p][i], b.parameters[p][i], tolerance) << what << ", parameter " << p << " at " << i;
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5) << what;
}

constexpr dist::Strategy strategies[] = {dist::Strategy::naive, dist::Strategy::flat, dist::Strategy::overlap,
                                         dist::Strategy::bucketed};

// spec: after 5 steps of SGD on parts of the batch the parameters are those of one process on all of it.
TEST(DataParallel, EqualsOneProcessOnTheWholeBatch) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    for (dist::Strategy strategy : strategies)
      for (bool compiled : {false, true}) {
        Setting s;
        s.compiled = compiled;
        s.data_parallel = {strategy, 0.02};  // several buckets, and tensors larger than one
        std::string what = backend + " " + name_of(strategy) + (compiled ? " compiled" : " eager");
        expect_close(train(s, group.get(), 5, w.size()), train(s, nullptr, 5, w.size()), 1e-5, what);
      }
  }
}

TEST(DataParallel, AccumulationAndClippingComeAfterOneAnotherAsInOneProcess) {
  dist::World& w = test_world();
  auto group = test_group();
  for (bool compiled : {false, true}) {
    Setting s;
    s.compiled = compiled;
    s.micro_batches = 3;
    s.data_parallel.bucket_mb = 0.02;
    s.optimizer = make_sgd({{.learning_rate = 0.1, .max_norm = 0.05}});  // every step is clipped
    expect_close(train(s, group.get(), 4, w.size()), train(s, nullptr, 4, w.size()), 1e-5,
                 compiled ? "compiled" : "eager");
  }
}

// Every strategy and both modes add in the same order.
TEST(DataParallel, AllStrategiesGiveTheSameBitsOverSharedMemory) {
  dist::World& w = test_world();
  auto group = test_group();
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    std::optional<Trained> firsts[2];  // a GPU's compiled step computes what eager's does, but not to the bit
    for (dist::Strategy strategy : strategies)
      for (bool compiled : {false, true}) {
        Setting s;
        s.compiled = compiled;
        s.dtype = dtype;
        s.optimizer = make_adamw({{.learning_rate = 0.1}});
        s.data_parallel = {strategy, 0.03};
        std::string what = fmt::format("{} {} {}", dtype, name_of(strategy), compiled);
        Trained t = train(s, group.get(), 10, w.size());
        std::optional<Trained>& first = firsts[test_device() == DeviceType::cuda && compiled];
        if (!first) first = t;
        EXPECT_TRUE(t.parameters == first->parameters) << what;
        EXPECT_EQ(t.losses, first->losses) << what;
      }
  }
}

TEST(DataParallel, RanksStayTheSame) {
  dist::World& w = test_world();
  auto group = test_group();
  Setting s;
  Trainer trainer(small_model(), options_of(s, group.get()), make_transformer);
  for (int64_t step = 0; step < 3; ++step) trainer.step(sequences(step, w.rank() * per_rank, per_rank), 0.1);
  dist::check_replicas(*group, trainer.parameters(), 3);
  const auto& e = trainer.parameters().entries()[1];
  if (w.rank() == 1) {
    Tensor changed = cast(e.value, DType::f32);
    trainer.parameters().load("master", e.name, add(changed, full(e.dims, 1e-6, DType::f32, test_device())));
  }
  try {
    dist::check_replicas(*group, trainer.parameters(), 4);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numeric);
    std::string text = error.what();
    EXPECT_NE(text.find("after step 4, " + e.name + " of rank 1"), std::string::npos) << text;
  }
}

TEST(DataParallel, TiedAndFrozenParameters) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    for (bool frozen : {false, true})
      for (bool compiled : {false, true})
        for (dist::Strategy strategy : strategies) {
          Setting s;
          s.compiled = compiled;
          s.data_parallel = {strategy, 0.01};
          s.model = [frozen](const ModelConfig& c, Parameters& p) {
            return std::make_unique<TiedModel>(c, p, frozen ? "norm" : "");
          };
          expect_close(train(s, group.get(), 5, w.size()), train(s, nullptr, 5, w.size()), 1e-5,
                       backend + " " + name_of(strategy));
        }
  }
}

// Before anybody waits.
TEST(DataParallel, ParametersWithoutGradientsAreNamed) {
  dist::World& w = test_world();
  auto group = test_group();
  Setting s;
  s.data_parallel.bucket_mb = 0.001;  // so that others are under way when it is found out
  s.model = [](const ModelConfig& c, Parameters& p) { return std::make_unique<ForgetfulModel>(c, p); };
  try {
    train(s, group.get(), 1, w.size());
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("forgotten"), std::string::npos) << e.what();
  }
  w.barrier();
}

}  // namespace
}  // namespace sinter
