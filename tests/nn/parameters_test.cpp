// Flat roles: how parameters lie, how they begin, and how their 16-bit copies stay current.
#include "nn/parameters.h"

#include <algorithm>
#include <cmath>

#include "compile/compiled.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "support/values.h"

namespace sinter {
namespace {

ModelConfig little() {
  ModelConfig c;
  c.d_model = 16, c.d_ff = 24, c.layers = 3, c.heads = 2, c.vocab = 19, c.ctx = 6;
  return c;
}

struct Built {
  Parameters parameters;
  std::unique_ptr<Model> model;
  Built(const ModelConfig& c, const Parameters::Options& options, const std::vector<std::string>& frozen)
      : parameters(options), model(make_transformer(c, parameters)) {
    for (const auto& name : frozen) parameters.freeze(name);
    parameters.allocate();
  }
};
Built build(const ModelConfig& c, const Parameters::Options& options = {},
            const std::vector<std::string>& frozen = {}) {
  return Built(c, options, frozen);
}

TEST(Parameters, LayoutFollowsTheRules) {
  Built b = build(little());
  b.parameters.allocate_grad();
  const Parameters& p = b.parameters;
  // Disjoint, inside the buffer, and views of it.
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const auto& e : p.entries()) {
    taken.push_back({e.offset, e.offset + e.dims.numel()});
    EXPECT_EQ(e.value.data(), static_cast<char*>(p.master().data()) + e.offset * 4) << e.name;
    EXPECT_EQ(e.grad.data(), static_cast<char*>(p.grad().data()) + e.offset * 4) << e.name;
    EXPECT_TRUE(e.grad.same_storage(p.grad()));
  }
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_LE(taken[i - 1].second, taken[i].first);
  EXPECT_LE(taken.back().second, p.trainable_size());
  EXPECT_EQ(p.trainable_size() % 128, 0);

  // Leaves begin at multiples of 128; members of a group lie side by side.
  for (const char* name :
       {"embedding.weight", "layers.1.attn.q.weight", "layers.1.attn.o.weight", "layers.2.ffn.w1.weight",
        "layers.2.ffn.w2.weight", "layers.0.norm2.weight", "norm.weight", "head.weight"})
    EXPECT_EQ(p.find(name).offset % 128, 0) << name;
  int64_t d2 = 16 * 16;
  EXPECT_EQ(p.find("layers.1.attn.k.weight").offset, p.find("layers.1.attn.q.weight").offset + d2);
  EXPECT_EQ(p.find("layers.1.attn.v.weight").offset, p.find("layers.1.attn.q.weight").offset + 2 * d2);
  EXPECT_EQ(p.find("layers.1.ffn.w3.weight").offset, p.find("layers.1.ffn.w1.weight").offset + 24 * 16);

  // Units in the order in which gradients arrive: the last first, one after the other without a gap.
  const auto& units = p.units();
  ASSERT_EQ(units.size(), 5u);
  EXPECT_EQ(units.back().name, "head");
  EXPECT_EQ(units.back().begin, 0);
  for (size_t i = 1; i < units.size(); ++i) EXPECT_EQ(units[i].end, units[i - 1].begin) << units[i].name;
  EXPECT_EQ(units.front().end, p.trainable_size());

  // Norms after the matrices of their unit.
  for (const char* m : {"attn.q", "attn.k", "attn.v", "attn.o", "ffn.w1", "ffn.w2", "ffn.w3"})
    for (const char* n : {"norm1", "norm2"})
      EXPECT_LT(p.find(std::string("layers.1.") + m + ".weight").offset,
                p.find(std::string("layers.1.") + n + ".weight").offset);
}

TEST(Parameters, FrozenOnesLieLastWithoutGradient) {
  Built b = build(little(), {}, {"embedding.weight", "layers.1.norm1.weight"});
  b.parameters.allocate_grad();
  const Parameters& p = b.parameters;
  EXPECT_GE(p.find("embedding.weight").offset, p.trainable_size());
  EXPECT_GE(p.find("layers.1.norm1.weight").offset, p.trainable_size());
  EXPECT_FALSE(p.find("embedding.weight").grad.defined());
  EXPECT_EQ(p.grad().numel(), p.trainable_size());
  EXPECT_EQ(p.count(), build(little()).parameters.count()) << "they still count as parameters";

  Values before = to_vector(p.find("embedding.weight").value);
  AdamW optimizer(b.parameters, {});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  backward(cross_entropy(b.model->logits(ids), ids));
  optimizer.step(0.1);
  EXPECT_EQ(to_vector(p.find("embedding.weight").value), before);
}

TEST(Parameters, WrongUseIsRefused) {
  Parameters p({});
  Tensor a = p.add({"a", {4, 4}, {}});
  p.add_group({{"b", {2, 4}, {}}, {"c", {3, 4}, {}}});
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { p.freeze("nonsense"); }), {"freeze(nonsense)", "no such parameter"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.freeze("b"); }), {"freeze(b)", "b|c"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"a", {1}, {}}); }), {"a", "twice"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"empty", {0, 4}, {}}); }), {"empty", "(0, 4)"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [&] {
                                  p.add_group({{"d", {2, 4}, {}}, {"e", {2, 5}, {}}});
                                }),
                       {"e", "(2, 5)", "(2, 4)"}));
  p.allocate();
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"late", {1}, {}}); }), {"before allocate"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.freeze("a"); }), {"freeze(a)", "before allocate"}));
  EXPECT_THROW(p.allocate(), Error);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.find("nonsense"); }), {"nonsense"}));
  Parameters none({});
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { none.allocate(); }), {"no parameters"}));
}

TEST(Parameters, NothingToTrainIsRefused) {
  Parameters p({});
  p.add({"a", {4}, {}});
  p.freeze("a");
  p.allocate();
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { AdamW(p, {}); }), {"frozen"}));
}

TEST(Parameters, InitialValues) {
  ModelConfig c = little();
  c.d_model = 64, c.d_ff = 160, c.vocab = 1000;
  Built b = build(c);
  for (const auto& e : b.parameters.entries()) {
    Values v = to_vector(e.value);
    if (e.dims.rank() == 1) {
      for (double x : v) ASSERT_EQ(x, 1) << e.name;
      continue;
    }
    double std = e.name == "embedding.weight" ? 1 : std::sqrt(2.0 / double(e.dims[0] + e.dims[1])), s1 = 0, s2 = 0,
           largest = 0;
    for (double x : v) s1 += x, s2 += x * x, largest = std::max(largest, std::fabs(x));
    double n = double(v.size());
    EXPECT_NEAR(s1 / n / std, 0, 5 / std::sqrt(n)) << e.name;
    EXPECT_NEAR(std::sqrt(s2 / n) / std, std::sqrt(0.97334), 4 / std::sqrt(n)) << e.name;
    EXPECT_LE(largest, 3 * std * (1 + 1e-5)) << e.name;
    EXPECT_GT(largest, 2.7 * std) << e.name;
  }
}

TEST(Parameters, InitialValuesFollowSeedAndNameAlone) {
  auto values = [](uint64_t seed, int64_t layers, const char* name) {
    ModelConfig c = little();
    c.layers = layers;
    return to_vector(build(c, {DeviceType::cpu, DType::f32, {}, seed}).parameters.find(name).value);
  };
  EXPECT_EQ(values(1, 2, "layers.1.attn.q.weight"), values(1, 3, "layers.1.attn.q.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(2, 2, "layers.1.attn.q.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(1, 2, "layers.1.attn.k.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(1, 2, "layers.0.attn.q.weight"));
}

TEST(Parameters, FloatTypesBeginAlike) {
  auto values = [](DType t) {
    return to_vector(build(little(), {DeviceType::cpu, t, {}, 3}).parameters.find("head.weight").value);
  };
  EXPECT_EQ(values(DType::f32), values(DType::f64));
}

std::vector<std::string> names_of_roles(const Parameters& p) {
  std::vector<std::string> names;
  for (const auto& r : p.roles()) names.push_back(r.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(Roles, AreListedInAStableOrder) {
  Built full = build(little()), mixed = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  EXPECT_EQ(names_of_roles(full.parameters), (Names{"master", "gradient"}));
  Parameters& p = mixed.parameters;
  EXPECT_EQ(names_of_roles(p), (Names{"master", "copy", "gradient"}));
  p.add_role("b", DType::f64, MemoryCategory::optimizer);
  p.add_role("a", DType::f32, MemoryCategory::optimizer);
  EXPECT_EQ(names_of_roles(p), (Names{"master", "copy", "gradient", "b", "a"}));
  p.remove_role("b");
  EXPECT_EQ(names_of_roles(p), (Names{"master", "copy", "gradient", "a"}));
}

TEST(Roles, SayWhatTheyAre) {
  Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0}, {"embedding.weight"});
  Parameters& p = b.parameters;
  p.add_role("m", DType::f64, MemoryCategory::optimizer);
  using Role = Parameters::Role;
  struct Expected {
    const char* name;
    DType dtype;
    MemoryCategory category;
    Role::Extent extent;
  };
  for (const Expected& x : {Expected{"master", DType::f32, MemoryCategory::parameter, Role::all},
                            {"copy", DType::bf16, MemoryCategory::low_copy, Role::all},
                            {"gradient", DType::f32, MemoryCategory::gradient, Role::trainable},
                            {"m", DType::f64, MemoryCategory::optimizer, Role::trainable}}) {
    const Role& r = p.role(x.name);
    EXPECT_EQ(r.dtype, x.dtype) << x.name;
    EXPECT_EQ(r.category, x.category) << x.name;
    EXPECT_EQ(r.extent, x.extent) << x.name;
    int64_t elements = x.extent == Role::all ? p.master().numel() : p.trainable_size();
    EXPECT_EQ(r.bytes(), elements * size_of(x.dtype)) << x.name;
    if (!r.flat().defined()) continue;
    EXPECT_EQ(r.flat().bytes(), r.bytes()) << x.name;
    EXPECT_EQ(r.flat().dtype(), x.dtype) << x.name;
  }
  EXPECT_GT(p.master().numel(), p.trainable_size());
  EXPECT_FALSE(p.role("gradient").flat().defined()) << "nobody has asked for gradients";
  for (double x : to_vector(p.role("m").flat())) ASSERT_EQ(x, 0);
}

TEST(Roles, AreReadByUnitAndByEntry) {
  Built b = build(little(), {}, {"embedding.weight"});
  Parameters& p = b.parameters;
  const auto &master = p.role("master"), &m = p.add_role("m", DType::f64, MemoryCategory::optimizer);
  auto at = [](const Tensor& t, const Tensor& in) {
    return (static_cast<char*>(t.data()) - static_cast<char*>(in.data())) / size_of(t.dtype());
  };
  for (const auto& u : p.units())
    for (const auto* r : {&master, &m}) {
      EXPECT_EQ(r->part(u).dims(), (Dims{u.end - u.begin})) << u.name;
      EXPECT_EQ(at(r->part(u), r->flat()), u.begin) << u.name;
    }
  for (const auto& e : p.entries()) {
    EXPECT_EQ(master.view(e).data(), e.value.data());
    const auto& unit = p.units()[size_t(e.unit)];
    if (e.name == "embedding.weight") {
      EXPECT_EQ(unit.name, "embedding");
      EXPECT_FALSE(m.view(e).defined()) << "it is frozen";
      continue;
    }
    EXPECT_EQ(m.view(e).dims(), e.dims);
    EXPECT_EQ(at(m.view(e), m.flat()), e.offset);
    EXPECT_TRUE(unit.begin <= e.offset && e.offset + e.dims.numel() <= unit.end) << e.name << " in " << unit.name;
  }
}

TEST(Roles, WrongUseIsRefused) {
  Parameters p({DeviceType::cpu, DType::f32, DType::bf16, 0});
  p.add({"a", {2, 3}, {}});
  p.add({"frozen", {4}, {}});
  p.freeze("frozen");
  Tensor a = zeros({2, 3}, DType::f32, DeviceType::cpu);
  auto refused = [&](auto what, const std::vector<std::string>& parts) {
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, what), parts));
  };
  refused([&] { p.load("master", "a", a); }, {"allocate()"});
  refused([&] { p.add_role("m", DType::f32, MemoryCategory::optimizer); }, {"add_role(m)", "allocate()"});
  p.allocate();
  refused([&] { p.role("moment"); }, {"moment", "master, copy, gradient"});
  p.add_role("m", DType::f32, MemoryCategory::optimizer);
  refused([&] { p.add_role("m", DType::f32, MemoryCategory::optimizer); }, {"m", "two optimizers"});
  refused([&] { p.add_role("master", DType::f32, MemoryCategory::optimizer); }, {"master"});
  for (const char* name : {"master", "copy", "gradient"}) refused([&] { p.remove_role(name); }, {name, "cannot do"});
  refused([&] { p.remove_role("moment"); }, {"moment", "master, copy, gradient, m"});

  refused([&] { p.load("moment", "a", a); }, {"moment", "master, copy, gradient, m"});
  refused([&] { p.load("master", "b", a); }, {"no parameter b"});
  refused([&] { p.load("master", "a", Tensor()); }, {"load(master, a)", "empty"});
  refused([&] { p.load("master", "a", reshape(a, {3, 2})); }, {"load(master, a)", "(2, 3)", "(3, 2)"});
  refused([&] { p.load("master", "a", cast(a, DType::f64)); }, {"load(master, a)", "fp64", "cast them to fp32"});
  refused([&] { p.load("master", "a", to(a, DeviceType::meta)); }, {"load(master, a)", "meta", "to(device)"});
  refused([&] { p.load("copy", "a", cast(a, DType::bf16)); }, {"copy", "load that"});
  for (const char* role : {"gradient", "m"})
    refused([&] { p.load(role, "frozen", zeros({4}, DType::f32, DeviceType::cpu)); }, {role, "frozen"});
  EXPECT_FALSE(p.grad().defined()) << "what is refused takes no memory";
  auto in_a_trace = [&](auto what) {
    compile::trace(
        [&](const auto&) {
          what();
          return std::vector<Tensor>{};
        },
        {}, DeviceType::cpu);
  };
  refused([&] { in_a_trace([&] { p.load("master", "a", a); }); }, {"traced"});
  refused([&] { in_a_trace([&] { p.add_role("n", DType::f32, MemoryCategory::optimizer); }); }, {"traced"});
  EXPECT_EQ(names_of_roles(p), (Names{"master", "copy", "gradient", "m"}));
}

// Which units' versions change.
struct Versions {
  const Parameters& p;
  const Parameters::Role& role;
  std::vector<uint32_t> before = now();
  std::vector<uint32_t> now() const {
    std::vector<uint32_t> v;
    for (const auto& u : p.units()) v.push_back(role.version(u));
    return v;
  }
  Names changed() {
    std::vector<uint32_t> after = now();
    Names names;
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] != before[i]) names.push_back(p.units()[i].name);
    before = after;
    return names;
  }
};
const Names every_unit{"embedding", "layers.0", "layers.1", "layers.2", "head"};

TEST(RoleVersions, AreOfUnitsWhereAWriteSaysWhere) {
  Built b = build(little(), {}, {"layers.2.norm1.weight"});
  Parameters& p = b.parameters;
  Versions master{p, p.role("master")}, gradient{p, p.role("gradient")};
  EXPECT_EQ(master.changed(), Names{});
  fill(p.find("head.weight").value, 0.5);
  EXPECT_EQ(master.changed(), every_unit) << "an op does not say where it writes";
  p.load("master", "layers.1.attn.k.weight", zeros({16, 16}, DType::f32, DeviceType::cpu));
  EXPECT_EQ(master.changed(), Names{"layers.1"});
  p.load("master", "layers.2.norm1.weight", zeros({16}, DType::f32, DeviceType::cpu));
  EXPECT_EQ(master.changed(), Names{"layers.2"}) << "frozen ones lie apart from their unit";
  const auto& first = p.units()[0];
  p.write_within(first.begin, first.end, [&] { fill(p.role("master").part(first), 1); });
  EXPECT_EQ(master.changed(), Names{"embedding"});
  EXPECT_EQ(gradient.changed(), Names{});
  Tensor arrived = zeros({19, 16}, DType::f32, DeviceType::cpu);
  for (int i = 0; i < 2; ++i) {
    p.load("gradient", "head.weight", arrived);
    EXPECT_EQ(gradient.changed(), every_unit) << "its memory is new; versions do not repeat those of the last";
    p.zero_grad();
    p.release_grad();
    EXPECT_FALSE(p.grad().defined());
  }
  p.load("gradient", "head.weight", arrived);
  gradient.changed();
  p.load("gradient", "head.weight", arrived);
  EXPECT_EQ(gradient.changed(), Names{"head"});
  EXPECT_EQ(master.changed(), Names{});
}

TEST(RoleVersions, OfUnitsThatAnOptimizerPassesByStay) {
  Parameters p({DeviceType::cpu, DType::f32, DType::bf16, 0});
  p.begin_unit("first");
  Tensor a = p.add({"a", {3}, {Init::ones, 0}});
  p.begin_unit("second");
  p.add({"b", {3}, {Init::ones, 0}});
  p.allocate();
  AdamW optimizer(p, {});
  optimizer.allocate();
  backward(sum(square(a)));
  for (const auto& r : p.roles()) {
    Versions versions{p, r};
    optimizer.step(0.1);
    if (r.name == "gradient")
      EXPECT_EQ(versions.changed(), (Names{"first", "second"})) << "the other's is zeroed, by an op";
    else EXPECT_EQ(versions.changed(), Names{"first"}) << r.name;
  }
}

TEST(Roles, GradientComesAndGoes) {
  Built b = build(little());
  Parameters& p = b.parameters;
  const auto& gradient = p.role("gradient");
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto pass = [&](const auto&) {
    p.zero_grad();
    Tensor loss = cross_entropy(b.model->logits(ids), ids);
    backward(loss);
    EXPECT_TRUE(gradient.flat().defined());
    return std::vector{loss.detach()};
  };
  compile::trace(pass, {}, DeviceType::cpu);
  EXPECT_FALSE(gradient.flat().defined()) << "a trace only promises it";
  EXPECT_FALSE(gradient.part(p.units()[1]).defined());
  EXPECT_FALSE(gradient.view(p.entries()[1]).defined());
  pass(0);
  EXPECT_GT(norm(to_vector(gradient.view(p.find("head.weight")))), 0);
  p.release_grad();
  EXPECT_TRUE(gradient.flat().defined()) << "it holds something";
  p.zero_grad();
  Tensor held = gradient.view(p.entries()[0]);
  p.release_grad();
  EXPECT_TRUE(gradient.flat().defined()) << "someone holds it";
  held = {};
  p.release_grad();
  EXPECT_FALSE(gradient.flat().defined());
}

TEST(Load, WritesOneParameterInPlace) {
  Built b = build(little());
  Parameters& p = b.parameters;
  const auto& moment = p.add_role("m", DType::f32, MemoryCategory::optimizer);
  p.allocate_grad();
  Rng rng(3);
  for (const char* role : {"master", "gradient", "m"})
    for (const char* name : {"layers.1.attn.k.weight", "layers.0.norm2.weight"}) {
      const auto& r = p.role(role);
      const auto& e = p.find(name);
      Values expected = to_vector(r.flat()), values = normals(rng, e.dims.numel());
      void* address = r.flat().data();
      Tensor given = tensor_of(values, e.dims, DType::f32);
      Values rounded = to_vector(given);
      std::copy(rounded.begin(), rounded.end(), expected.begin() + e.offset);
      p.load(role, name, given);
      EXPECT_EQ(to_vector(r.flat()), expected) << role << ' ' << name;
      EXPECT_EQ(r.flat().data(), address);
    }
  EXPECT_GT(norm(to_vector(moment.flat())), 0);
}

TEST(Load, TakesAnyLayout) {
  Parameters p({});
  p.add({"a", {2, 3}, {}});
  p.allocate();
  p.load("master", "a", transpose(tensor_of({1, 2, 3, 4, 5, 6}, {3, 2}, DType::f32), 0, 1));
  EXPECT_EQ(to_vector(p.find("a").value), (Values{1, 3, 5, 2, 4, 6}));
}

TEST(Load, AGradientHasArrived) {
  Parameters p({DeviceType::cpu, DType::f64, {}, 0});
  p.add_group({{"q", {1, 2}, {Init::ones, 0}}, {"k", {1, 2}, {Init::ones, 0}}});
  p.add({"other", {2}, {Init::ones, 0}});
  p.allocate();
  Sgd optimizer(p, {});
  p.allocate_grad();
  fill(p.grad(), NAN);
  p.load("gradient", "k", tensor_of({3, 4}, {1, 2}, DType::f64));
  optimizer.step(0.5);
  EXPECT_EQ(to_vector(p.find("k").value), (Values{-0.5, -1}));
  EXPECT_EQ(to_vector(p.find("q").value), (Values{1, 1})) << "the rest of its group is zero";
  EXPECT_EQ(to_vector(p.find("other").value), (Values{1, 1}));
}

TEST(Load, ReachesBothUsesOfATiedParameter) {
  Parameters p({DeviceType::cpu, DType::f32, DType::bf16, 0});
  Tensor w = p.add({"w", {4, 4}, {}});
  p.allocate();
  Tensor x = full({1, 4}, 1, DType::f32, DeviceType::cpu);
  auto twice = [&] {
    NoGrad off;
    Autocast mixed(DType::bf16);
    return to_vector(matmul(matmul(x, w), w));
  };
  twice();
  p.load("master", "w", full({4, 4}, 0.5, DType::f32, DeviceType::cpu));
  EXPECT_EQ(twice(), (Values{4, 4, 4, 4}));
  EXPECT_EQ(p.entries().size(), 1u);
}

TEST(Load, OnMetaOnlyCounts) {
  Built b = build(little(), {DeviceType::meta, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  Versions master{p, p.role("master")}, copy{p, p.role("copy")};
  p.load("master", "head.weight", empty({19, 16}, DType::f32, DeviceType::meta));
  p.refresh_stale_low_copy();
  EXPECT_EQ(master.changed(), Names{"head"});
  EXPECT_EQ(copy.changed(), Names{"head"});
  p.load("gradient", "head.weight", empty({19, 16}, DType::f32, DeviceType::meta));
  EXPECT_TRUE(p.grad().defined());
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [&] {
                                  p.load("master", "head.weight", zeros({19, 16}, DType::f32, DeviceType::cpu));
                                }),
                       {"meta", "cpu"}));
}

Values rounded(const Tensor& t, DType type) { return to_vector(cast(t.detach(), type)); }

TEST(LowCopy, StaysCurrent) {
  Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16)) << "from the start";
  AdamW optimizer(p, {});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto logits = [&] {
    Autocast mixed(DType::bf16);
    return b.model->logits(ids);
  };
  Values before = to_vector(p.master());
  for (int i = 0; i < 3; ++i) {
    p.zero_grad();
    backward(cross_entropy(logits(), ids));
    optimizer.step(0.01);
    EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16)) << "the optimizer writes both";
  }
  EXPECT_NE(to_vector(p.master()), before);

  NoGrad off;
  Values first = to_vector(logits());
  fill(p.find("head.weight").value, 0);  // someone loads a checkpoint
  Values second = to_vector(logits());
  EXPECT_NE(first, second);
  for (double x : second) ASSERT_EQ(x, 0) << "the product must not read the old copy";
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

struct CastCount : Interceptor {
  int parameters = 0;
  void called(const OpCall& used, TensorPtrs inputs, const Outputs&) override {
    parameters += std::string(used.op.name) == "cast" && leaf_of(*inputs[0]);
  }
};

TEST(LowCopy, IsALookupNotACast) {
  Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  CastCount count;
  Listening on(count);
  Autocast mixed(DType::bf16);
  Tensor loss = cross_entropy(b.model->logits(ids), ids);
  EXPECT_EQ(count.parameters, 0);
  backward(loss);
}

// Casts of parameters to refresh their copies, by elements.
struct CopiesMade : Interceptor {
  std::vector<int64_t> sizes;
  void called(const OpCall& used, TensorPtrs, const Outputs& outputs) override {
    if (std::string(used.op.name) == "cast" && outputs[0].same_storage(copy)) sizes.push_back(outputs[0].numel());
  }
  Tensor copy;
};

TEST(LowCopy, FollowsLoadsAlone) {
  Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto logits = [&] {
    NoGrad off;
    Autocast mixed(DType::bf16);
    return to_vector(b.model->logits(ids));
  };
  auto zero = [&](const char* name) { p.load("master", name, zeros(p.find(name).dims, DType::f32, DeviceType::cpu)); };
  CopiesMade made;
  made.copy = p.low_copy();
  Listening on(made);
  Values before = logits();
  EXPECT_EQ(made.sizes, std::vector<int64_t>{});

  zero("head.weight");
  for (double x : logits()) ASSERT_EQ(x, 0);
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{19 * 16})) << "eager: when it is read";
  logits();
  p.refresh_stale_low_copy();
  EXPECT_EQ(made.sizes.size(), 1u) << "once";

  made.sizes.clear();
  Versions copy{p, p.role("copy")};
  zero("layers.1.attn.q.weight");
  zero("layers.1.norm2.weight");
  zero("layers.2.ffn.w2.weight");
  p.refresh_stale_low_copy();
  EXPECT_EQ(copy.changed(), (Names{"layers.1", "layers.2"})) << "compiled: before the replay";
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{24 * 16, 3 * 16 * 16 + 128}))
      << "w2; then q|k|v, which is one leaf, with its neighbour norm2";
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));

  made.sizes.clear();
  fill(p.find("layers.0.norm1.weight").value, 2);
  p.refresh_stale_low_copy();
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{p.master().numel()})) << "an op does not say where: one cast of all";
}

TEST(LowCopy, OfWhatChangedBeforeALoadStaysStale) {
  Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  fill(p.find("layers.0.attn.o.weight").value, 0.25);
  p.load("master", "head.weight", zeros({19, 16}, DType::f32, DeviceType::cpu));
  p.load("master", "head.weight", full({19, 16}, 1, DType::f32, DeviceType::cpu));
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

TEST(LowCopy, ThatNoUpdateReachesIsNotCalledCurrent) {
  Parameters p({DeviceType::cpu, DType::f32, DType::bf16, 0});
  Tensor used = p.add({"used", {3}, {Init::ones, 0}}), unused = p.add({"unused", {3}, {Init::ones, 0}});
  p.add({"frozen", {3}, {Init::ones, 0}});
  p.freeze("frozen");
  p.allocate();
  AdamW optimizer(p, {});
  fill(p.find("unused").value, 3);
  fill(p.find("frozen").value, 4);
  backward(sum(square(used)));
  optimizer.step(0.1);
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

// A compiled step beside an eager one, with parameters written in every way in between.
TEST(LowCopy, StaysCurrentUnderACompiledStep) {
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto train = [&](bool compiled) {
    Built b = build(little(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
    Parameters& p = b.parameters;
    AdamW optimizer(p, {});
    optimizer.allocate();
    auto step = [&](const std::vector<Tensor>& in) {
      Tensor loss = [&] {
        Autocast mixed(DType::bf16);
        return cross_entropy(b.model->logits(in[0]), in[0]);
      }();
      backward(loss);
      optimizer.step();
      p.zero_grad();
      return std::vector{loss.detach()};
    };
    compile::Compiled replayed(step, DeviceType::cpu);
    std::vector<void*> addresses;
    Values losses;
    for (int i = 0; i < 8; ++i) {
      if (i == 2) fill(p.find("head.weight").value, 0.01);
      if (i == 4) p.load("master", "layers.1.attn.v.weight", full({16, 16}, 0.1, DType::f32, DeviceType::cpu));
      if (i == 5) p.load("adamw.m", "head.weight", full({19, 16}, 0.1, DType::f32, DeviceType::cpu));
      if (i == 6) {
        std::vector<double> state = optimizer.state();
        state[state_lr] = 0.05;
        optimizer.load_state(state);
      }
      p.refresh_stale_low_copy();
      losses.push_back(item(compiled ? replayed({ids})[0] : step({ids})[0]));
      p.low_copy_is_current();
      for (const auto& r : p.roles()) {
        if (r.name == "gradient") continue;
        if (i == 0) addresses.push_back(r.flat().data());
        EXPECT_NE(std::find(addresses.begin(), addresses.end(), r.flat().data()), addresses.end()) << r.name;
      }
    }
    EXPECT_EQ(replayed.traces(), compiled ? 1u : 0u);
    EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
    losses.push_back(norm(to_vector(p.master())));
    return losses;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(Gradients, ArriveInTheFlatBuffer) {
  for (auto compute : {std::optional<DType>{}, std::optional(DType::bf16)}) {
    Built b = build(little(), {DeviceType::cpu, DType::f32, compute, 0});
    b.parameters.allocate_grad();
    for (const auto& e : b.parameters.entries())
      fill(e.grad, NAN);  // the first contribution overwrites whatever is there
    Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
    Autocast mixed(compute);
    backward(cross_entropy(b.model->logits(ids), ids));
    for (const auto& e : b.parameters.entries()) {
      double norm = 0;
      for (double g : to_vector(e.grad)) {
        ASSERT_TRUE(std::isfinite(g)) << e.name;
        norm += g * g;
      }
      EXPECT_GT(norm, 0) << e.name;
    }
  }
}

TEST(Gradients, TheUnusedAreZeroedBeforeTheStepAndStayUntouched) {
  Parameters p({});
  Tensor used = p.add({"used", {3}, {Init::ones, 0}}), unused = p.add({"unused", {3}, {Init::ones, 0}});
  p.allocate();
  p.allocate_grad();
  for (const auto& e : p.entries()) fill(e.grad, NAN);
  AdamWOptions options;
  options.max_norm = 1;
  AdamW optimizer(p, options);
  backward(sum(square(used)));
  optimizer.step(0.1);
  EXPECT_EQ(to_vector(unused), (Values{1, 1, 1})) << "not even weight decay";
  EXPECT_NEAR(optimizer.state()[state_grad_norm], std::sqrt(12.0), 1e-6);
  for (double x : to_vector(used)) EXPECT_LT(x, 1);
}

}  // namespace
}  // namespace sinter
