// Ranks that divide optimizer, gradients and parameters against ranks that have all of them.
#include "dist/sharding.h"

#include <cmath>
#include <gtest/gtest.h>

#include "plan/prediction.h"
#include "ranks/small_model.h"
#include "ranks/world.h"
#include "train/workload.h"

namespace sinter {
namespace {

constexpr ShardLevel levels[] = {ShardLevel::broadcast, ShardLevel::optimizer, ShardLevel::gradients,
                                 ShardLevel::parameters};

struct Setting {
  bool compiled = false;
  std::string dtype = "fp32";
  MakeOptimizer optimizer = make_adamw({{.learning_rate = 0.01}});
  dist::ShardOptions shard;
  int64_t micro_batches = 1;
  MakeModel model = make_transformer;

  std::string text() const {
    return fmt::format("{} {} {}{}{} micro-batches {}", name_of(shard.level), dtype, compiled ? "compiled" : "eager",
                       shard.reshard_after_forward ? "" : " kept", shard.accumulate_unsharded ? " unsharded" : "",
                       micro_batches);
  }
};

TrainerOptions options_of(const Setting& s, ProcessGroup* group) {
  TrainerOptions o;
  o.precision = precision_named(s.dtype);
  o.optimizer = s.optimizer;
  o.group = group;
  o.shard = s.shard;
  o.device = test_device();
  if (s.compiled) o.compiled = compile::CompileOptions{};
  return o;
}

struct Trained {
  std::vector<std::vector<double>> values;  // of every entry: the master, and the moments where it has them
  std::vector<double> losses;
};

std::vector<double> whole(Trainer& trainer, const std::string& role, const Parameters::Entry& e) {
  auto* sharding = dynamic_cast<dist::Sharding*>(trainer.parallel());
  Tensor t = sharding ? sharding->gathered(role, e) : trainer.parameters().role(role).view(e);
  return t.defined() ? to_vector(t) : std::vector<double>();
}

Trained train(const Setting& s, ProcessGroup* group, int64_t steps, int ranks) {
  Trainer trainer(small_model(), options_of(s, group), s.model);
  Trained result;
  int64_t count = group ? per_rank : per_rank * ranks, first = group ? group->rank() * per_rank : 0;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Batch> batches;
    for (int64_t m = 0; m < s.micro_batches; ++m)
      batches.push_back(sequences(step * s.micro_batches + m, first, count));
    result.losses.push_back(trainer.step(batches, 0.01));
  }
  for (const auto& e : trainer.parameters().entries())
    for (const auto& role : trainer.parameters().roles())
      if (role.name != "gradient" && role.name != "copy") result.values.push_back(whole(trainer, role.name, e));
  return result;
}

// Data parallelism on the same ranks. A GPU's compiled step computes what eager's does, but not to the bit.
class Reference {
 public:
  Reference(Setting s, ProcessGroup* group, int64_t steps, int ranks) {
    for (bool compiled : {false, true}) {
      s.compiled = compiled;
      by_mode_[compiled] = train(s, group, steps, ranks);
    }
    if (test_device() == DeviceType::cpu) {
      EXPECT_TRUE(by_mode_[0].values == by_mode_[1].values) << s.text();
    }
  }
  const Trained& operator[](bool compiled) const { return by_mode_[compiled]; }

 private:
  Trained by_mode_[2];
};

// Each tensor by its own norm.
void expect_close(const Trained& a, const Trained& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t p = 0; p < a.values.size(); ++p) {
    ASSERT_EQ(a.values[p].size(), b.values[p].size()) << what;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.values[p].size(); ++i)
      difference += std::pow(a.values[p][i] - b.values[p][i], 2), norm += std::pow(b.values[p][i], 2);
    ASSERT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + 1e-30) << what << ", value " << p;
  }
}

// As in data parallelism, gradients are added in the order of ranks and averaged, and every number is updated by one
// rule: nothing else may change a bit. Clipping takes a norm over all of them.
TEST(Sharding, EveryLevelHasTheBitsOfDataParallelism) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend, {}, true);
    for (auto [dtype, clips] : {std::pair{"fp32", false}, {"bf16", true}, {"fp16", false}}) {
      if (backend == "gloo" && dtype != std::string("bf16")) continue;  // what differs is the collectives
      Setting s;
      s.dtype = dtype;
      s.optimizer = make_adamw({{.learning_rate = 0.01, .max_norm = clips ? 0.05 : 0.0}});
      Reference ddp(s, group.get(), 4, w.size());
      for (ShardLevel level : levels)
        for (bool compiled : {false, true}) {
          s.shard.level = level;
          s.compiled = compiled;
          Trained t = train(s, group.get(), 4, w.size());
          std::string what = backend + " " + s.text() + (clips ? " clipped" : "");
          EXPECT_TRUE(t.values == ddp[s.compiled].values) << what;
          EXPECT_EQ(t.losses, ddp[s.compiled].losses) << what;
        }
    }
  }
}

TEST(Sharding, ParametersMayStayForTheBackwardPass) {
  dist::World& w = test_world();
  auto group = test_group();
  for (const char* dtype : {"fp32", "bf16"}) {
    Setting s;
    s.dtype = dtype;
    Reference ddp(s, group.get(), 4, w.size());
    s.shard = {.level = ShardLevel::parameters, .reshard_after_forward = false};
    for (bool compiled : {false, true}) {
      s.compiled = compiled;
      EXPECT_TRUE(train(s, group.get(), 4, w.size()).values == ddp[s.compiled].values) << s.text();
    }
  }
}

// Data parallelism adds micro-batches up and reduces once; so do shards that keep gradients whole until the last. By
// default each is reduced, which is another order of addition: the levels agree with each other.
TEST(Sharding, Accumulation) {
  dist::World& w = test_world();
  auto group = test_group();
  Setting s;
  s.micro_batches = 3;
  s.optimizer = make_sgd({{.learning_rate = 0.1, .max_norm = 0.05}});
  Reference ddp(s, group.get(), 3, w.size());
  std::optional<Trained> reduced[2];
  for (ShardLevel level : levels)
    for (bool compiled : {false, true})
      for (bool unsharded : {false, true}) {
        s.shard = {.level = level, .accumulate_unsharded = unsharded};
        s.compiled = compiled;
        Trained t = train(s, group.get(), 3, w.size());
        if (unsharded || level < ShardLevel::gradients) {
          EXPECT_TRUE(t.values == ddp[s.compiled].values) << s.text();
          EXPECT_EQ(t.losses, ddp[s.compiled].losses) << s.text();
        } else {
          expect_close(t, ddp[s.compiled], 1e-6, s.text());
          auto& first = reduced[test_device() == DeviceType::cuda && s.compiled];
          if (!first) first = t;
          EXPECT_TRUE(t.values == first->values) << s.text();
        }
      }
}

// spec: three steps of SGD within 1e-6 of one process, by each tensor's norm.
TEST(Sharding, EqualsOneProcessOnTheWholeBatch) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    Setting s;
    s.optimizer = make_sgd({{.learning_rate = 0.1}});
    Trained alone = train(s, nullptr, 3, w.size());
    for (ShardLevel level : levels) {
      s.shard.level = level;
      expect_close(train(s, group.get(), 3, w.size()), alone, 1e-6, backend + " " + s.text());
    }
  }
}

// A table that is read as it is, in fp32, and as a matrix, in 16 bits; a vector and a matrix that are not trained.
TEST(Sharding, TiedAndFrozenParameters) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend, {}, true);
    for (auto [dtype, frozen] : {std::pair{"fp32", "middle"}, {"bf16", ""}, {"bf16", "norm"}}) {
      Setting s;
      s.dtype = dtype;
      s.model = [frozen = frozen](const ModelConfig& c, Parameters& p) {
        return std::make_unique<TiedModel>(c, p, frozen);
      };
      Reference ddp(s, group.get(), 3, w.size());
      for (ShardLevel level : levels)
        for (bool compiled : {false, true}) {
          s.shard.level = level, s.compiled = compiled;
          EXPECT_TRUE(train(s, group.get(), 3, w.size()).values == ddp[s.compiled].values)
              << backend << " " << s.text();
        }
    }
  }
}

TEST(Sharding, ParametersWithoutGradientsAreNamed) {
  dist::World& w = test_world();
  auto group = test_group();
  for (ShardLevel level : levels) {
    Setting s;
    s.shard.level = level;
    s.model = [](const ModelConfig& c, Parameters& p) { return std::make_unique<ForgetfulModel>(c, p); };
    try {
      train(s, group.get(), 1, w.size());
      ADD_FAILURE() << "nobody noticed: " << name_of(level);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("forgotten"), std::string::npos) << e.what();
    }
    w.barrier();
  }
}

TEST(Sharding, SeedsMustAgree) {
  dist::World& w = test_world();
  auto group = test_group();
  Setting s;
  s.shard.level = ShardLevel::parameters;
  TrainerOptions o = options_of(s, group.get());
  o.seed = uint64_t(w.rank());
  try {
    Trainer trainer(small_model(), o, make_transformer);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("different seeds"), std::string::npos) << e.what();
  }
  w.barrier();
}

// What is loaded between steps reaches every rank's whole copies.
TEST(Sharding, LoadedParametersAreGathered) {
  dist::World& w = test_world();
  auto group = test_group();
  for (const char* dtype : {"fp32", "bf16"})
    for (bool compiled : {false, true}) {
      std::optional<std::vector<double>> expected;
      for (ShardLevel level :
           {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
        Setting s;
        s.dtype = dtype, s.compiled = compiled;
        s.shard.level = level;
        Trainer trainer(small_model(), options_of(s, group.get()), make_transformer);
        std::vector<double> losses;
        for (int64_t step = 0; step < 3; ++step) {
          losses.push_back(trainer.step(sequences(step, w.rank() * per_rank, per_rank), 0.01));
          for (const char* name : {"layers.1.attn.k.weight", "embedding.weight", "norm.weight"}) {
            Tensor values = empty(trainer.parameters().find(name).dims, DType::f32, test_device());
            fill_normal(values, 7, uint64_t(step), 0.3);
            trainer.parameters().load("master", name, values);
          }
        }
        if (!expected) expected = losses;
        EXPECT_EQ(losses, *expected) << s.text();
      }
    }
}

// One call that reads parameters of two units.
class CrossedModel : public Model {
 public:
  CrossedModel(const ModelConfig& c, Parameters& p) {
    p.begin_unit("one");
    one_ = p.add({"one", {c.vocab, c.d_model}, {Init::truncated_normal, 0.3}});
    p.begin_unit("two");
    two_ = p.add({"two", {c.vocab, c.d_model}, {Init::truncated_normal, 0.3}});
  }
  Tensor logits(const Tensor& tokens) const override {
    Tensor both = add(one_, two_);
    return linear(embedding(both, tokens), two_);
  }

 private:
  Tensor one_, two_;
};

TEST(Sharding, ACallMayReadTwoUnits) {
  dist::World& w = test_world();
  auto group = test_group();
  for (const char* dtype : {"fp32", "bf16"}) {
    Setting s;
    s.dtype = dtype;
    s.model = [](const ModelConfig& c, Parameters& p) { return std::make_unique<CrossedModel>(c, p); };
    Reference ddp(s, group.get(), 3, w.size());
    for (ShardLevel level : levels)
      for (bool compiled : {false, true}) {
        s.shard.level = level, s.compiled = compiled;
        EXPECT_TRUE(train(s, group.get(), 3, w.size()).values == ddp[s.compiled].values) << s.text();
      }
  }
}

// Passes of all kinds, micro-batches and batch sizes, in any order.
TEST(Sharding, PassesMayFollowEachOtherInAnyOrder) {
  dist::World& w = test_world();
  auto group = test_group();
  for (const char* dtype : {"fp32", "bf16"})
    for (bool compiled : {false, true}) {
      std::optional<std::vector<double>> expected;
      for (ShardLevel level : {ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
        Setting s;
        s.dtype = dtype, s.compiled = compiled;
        s.shard = {.level = level, .accumulate_unsharded = true};
        std::vector<double> losses;
        for (bool unsharded : {true, false}) {
          s.shard.accumulate_unsharded = unsharded;
          Trainer t(small_model(), options_of(s, group.get()), make_transformer);
          auto batch = [&](int64_t step, int64_t count) { return sequences(step, w.rank() * count, count); };
          auto note = [&](const Tensor& loss) {
            if (unsharded) losses.push_back(item(loss));
          };
          std::vector<Batch> two = {batch(1, 2), batch(2, 2)}, others = {batch(3, 1), batch(4, 1)};
          note(t.run(Pass::forward_backward, two[0]));
          note(t.run(Pass::step, two[0]));
          note(t.run(Pass::step, two));
          note(t.run(Pass::evaluate, two[1]));
          note(t.run(Pass::step, others[0]));
          note(t.run(Pass::step, others));
          t.run(Pass::forward, two[1]);
          note(t.run(Pass::forward_backward, others));
          note(t.run(Pass::step, two[0]));
          note(t.run(Pass::evaluate, two));
        }
        if (!expected) expected = losses;
        EXPECT_EQ(losses, *expected) << s.text();
      }
    }
}

TEST(Sharding, GradientsCanBeGathered) {
  dist::World& w = test_world();
  auto group = test_group();
  std::optional<std::vector<std::vector<double>>> expected;
  for (ShardLevel level : {ShardLevel::none, ShardLevel::broadcast, ShardLevel::optimizer, ShardLevel::gradients,
                           ShardLevel::parameters}) {
    Setting s;
    s.shard.level = level;
    Trainer t(small_model(), options_of(s, group.get()), make_transformer);
    t.run(Pass::forward_backward, sequences(0, w.rank() * per_rank, per_rank));
    std::vector<std::vector<double>> all;
    for (const auto& e : t.parameters().entries()) all.push_back(whole(t, "gradient", e));
    if (!expected) expected = all;
    EXPECT_TRUE(all == *expected) << name_of(level);
  }
}

// A step that was traced, or is half done, does not read other numbers than it began with; and nothing is written where
// it would be lost.
TEST(Sharding, ChangesBehindItsBackAreRefused) {
  dist::World& w = test_world();
  auto group = test_group();
  Parameters::Options options;
  options.device = test_device();
  options.shards = dist::shards_of({.level = ShardLevel::parameters}, *group);
  options.pool = group->pool();
  Parameters p(options);
  p.begin_unit("one");
  Tensor one = p.add({"one", {32, 32}, Init::linear(32, 32)});
  p.begin_unit("two");
  Tensor two = p.add({"two", {32, 32}, Init::linear(32, 32)});
  p.allocate();
  dist::Sharding sharding(p, *group, {.level = ShardLevel::parameters});
  auto refused = [](const char* part, const std::function<void()>& f) {
    try {
      f();
      ADD_FAILURE() << "nobody noticed: " << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  sharding.begin_pass();
  Tensor x = full({4, 32}, 0.5, DType::f32, test_device());
  Tensor loss = mean(linear(linear(x, one), two));
  p.load("master", "one", full({32, 32}, 1, DType::f32, test_device()));
  p.load("master", "two", full({32, 32}, 1, DType::f32, test_device()));
  sharding.end_pass();
  sharding.begin_pass();
  sharding.begin_backward({});
  refused("was changed in place", [&] { backward(loss); });
  sharding.end_pass();
  NoGrad off;
  linear(x, one);
  refused("use Parameters::load()", [&] { fill(one, 3); });
  sharding.end_pass();
  w.barrier();
}

// What a rank takes is known before anything runs.
TEST(Sharding, MemoryIsWhatWasPredicted) {
  auto group = test_group();
  for (auto [dtype, accumulate] : {std::pair{"fp32", int64_t(1)}, {"bf16", int64_t(1)}, {"bf16", int64_t(3)}})
    for (Mode mode : {Mode::eager, Mode::compiled})
      for (ShardLevel level : levels)
        for (bool keeps : {false, true}) {
          if (keeps && level != ShardLevel::parameters) continue;
          RunConfig c;
          c.model = small_model();
          c.batch = per_rank;
          c.precision = precision_named(dtype);
          c.mode = mode;
          c.accumulate = accumulate;
          c.adamw.max_norm = 1;
          c.group = group.get();
          c.shard = {.level = level, .reshard_after_forward = !keeps};
          plan::Prediction need = plan::predict(c, target_of(test_device()), make_transformer);
          CachingAllocator& allocator = allocator_of(test_device());
          allocator.release_cached();
          allocator.reset_peak();
          int64_t before = allocator.stats().allocated, peak = 0;
          {
            Workload work(c, test_device(), make_transformer);
            for (int i = 0; i < 3; ++i) work.run();
            peak = allocator.stats().peak_allocated - before;
          }
          EXPECT_EQ(peak, need.bytes()) << dtype << " " << name_of(mode) << " " << name_of(level) << " " << accumulate;
          EXPECT_EQ(allocator.stats().allocated, before) << name_of(level);
        }
}

// Under mixed precision an optimizer's masters are sharded: tables that are read in fp32 are gathered anew after each
// step, and what is loaded reaches the 16-bit copies.
TEST(ShardedOptimizer, UnderMixedPrecision) {
  dist::World& w = test_world();
  auto group = test_group();
  std::vector<std::vector<double>> losses;
  for (ShardLevel level : {ShardLevel::none, ShardLevel::broadcast, ShardLevel::optimizer}) {
    Parameters::Options options;
    options.device = test_device();
    options.compute = DType::bf16;
    options.shards = {level, w.rank(), w.size(), false};
    options.pool = group->pool();
    Parameters p(options);
    p.begin_unit("table");
    Tensor table = p.add({"table", {50, 32}, {Init::truncated_normal, 0.3}});
    p.begin_unit("m");
    Tensor m = p.add({"m", {32, 32}, Init::linear(32, 32)});
    p.allocate();
    p.load("master", "m", full({32, 32}, 0.25, DType::f32, test_device()));
    dist::ShardedOptimizer sharded(*group);
    std::optional<Sgd> plain;
    if (level == ShardLevel::none) plain.emplace(p, SgdOptions{{.learning_rate = 0.1}});
    else sharded.add(p, make_sgd({{.learning_rate = 0.1}}));
    Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {6}, test_device());
    std::vector<double>& all = losses.emplace_back();
    for (int step = 0; step < 5; ++step) {
      p.zero_grad();
      Tensor loss = [&] {
        Autocast on(DType::bf16);
        return mean(square(linear(embedding(table, ids), m)));
      }();
      all.push_back(item(loss));
      backward(loss);  // the same on every rank, so that the average is each one's
      if (plain) plain->step(0.1);
      else sharded.step(0.1);
      if (step != 2) continue;
      p.load("master", "m", full({32, 32}, 0.5, DType::f32, test_device()));
      if (!plain) sharded.refresh();
    }
    if (level == ShardLevel::none) continue;
    p.zero_grad();
    try {
      sharded.step(0.1);
      ADD_FAILURE() << "nobody noticed that there are no gradients";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("gave no gradient to m, table"), std::string::npos) << e.what();
    }
    w.barrier();
  }
  for (const auto& other : losses)
    for (size_t i = 0; i < other.size(); ++i) EXPECT_NEAR(other[i], losses[0][i], 1e-5 * losses[0][i]) << i;
  EXPECT_LT(losses[0][2], losses[0][0]);
}

// spec: any optimizer, any groups of parameters, also added later; ten steps of AdamW have the unsharded weights.
TEST(ShardedOptimizer, WrapsOptimizersOfLoopsOfOnesOwn) {
  dist::World& w = test_world();
  auto group = test_group();
  struct Layers {
    Parameters p;
    Tensor a, b;
    explicit Layers(const Parameters::Options& o) : p(o) {
      p.begin_unit("a");
      a = p.add({"a", {24, 40}, Init::linear(40, 24)});
      p.begin_unit("b");
      b = p.add({"b", {40, 24}, Init::linear(24, 40)});
      p.allocate();
    }
    Tensor loss(const Tensor& x) const { return mean(square(linear(linear(x, a), b))); }
  };
  auto batch = [&](int64_t step, int rank) {
    Tensor x = empty({8, 40}, DType::f32, test_device());
    fill_normal(x, uint64_t(step), uint64_t(rank), 1);
    return x;
  };
  for (ShardLevel level : {ShardLevel::broadcast, ShardLevel::optimizer}) {
    Parameters::Options options;
    options.device = test_device();
    Layers plain1(options), plain2(options);
    options.shards = {level, w.rank(), w.size(), false};
    options.pool = group->pool();
    Layers mine1(options), mine2(options);
    dist::ShardedOptimizer sharded(*group);
    AdamW first(plain1.p, {{.learning_rate = 0.01}});
    std::optional<Sgd> second;
    sharded.add(mine1.p, make_adamw({{.learning_rate = 0.01}}));
    for (int64_t step = 0; step < 10; ++step) {
      if (step == 4) {  // a group that comes later, with another optimizer
        sharded.add(mine2.p, make_sgd({{.learning_rate = 0.01}, 0.9}));
        second.emplace(plain2.p, SgdOptions{{.learning_rate = 0.01}, 0.9});
      }
      for (Layers* l : {&mine1, &mine2}) {
        l->p.zero_grad();
        backward(l->loss(batch(step, w.rank())));
      }
      sharded.step(0.01);
      for (Layers* l : {&plain1, &plain2}) {
        l->p.zero_grad();
        for (int r = 0; r < w.size(); ++r)
          backward(l->loss(batch(step, r)), full({}, 1.0 / w.size(), DType::f32, test_device()));
      }
      first.step(0.01);
      if (second) second->step(0.01);
    }
    for (auto [m, p] : {std::pair{&mine1, &plain1}, std::pair{&mine2, &plain2}})
      for (const auto& e : m->p.entries()) {
        std::vector<double> x = to_vector(e.value), y = to_vector(p->p.find(e.name).value);
        double difference = 0, norm = 0;
        for (size_t i = 0; i < x.size(); ++i) difference += std::pow(x[i] - y[i], 2), norm += y[i] * y[i];
        EXPECT_LE(std::sqrt(difference), 3e-7 * std::sqrt(norm)) << name_of(level) << " " << e.name;
      }
  }
}

}  // namespace
}  // namespace sinter
