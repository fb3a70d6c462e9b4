// Roles of parameters: by name, by unit and by entry, their versions, and loading in place.
#include <algorithm>
#include <cmath>

#include "compile/compiled.h"
#include "nn/parameters.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "support/built.h"
#include "support/values.h"

namespace sinter {
namespace {

std::vector<std::string> names_of_roles(const Parameters& p) {
  std::vector<std::string> names;
  for (const auto& r : p.roles()) names.push_back(r.name);
  return names;
}

TEST(Roles, AreListedInAStableOrder) {
  Built full = build(little_transformer()),
        mixed = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
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
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0}, {"embedding.weight"});
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
  Built b = build(little_transformer(), {}, {"embedding.weight"});
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

const Names every_unit{"embedding", "layers.0", "layers.1", "layers.2", "head"};

TEST(RoleVersions, AreOfUnitsWhereAWriteSaysWhere) {
  Built b = build(little_transformer(), {}, {"layers.2.norm1.weight"});
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
  Built b = build(little_transformer());
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
  Built b = build(little_transformer());
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
  Built b = build(little_transformer(), {DeviceType::meta, DType::f32, DType::bf16, 0});
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

}  // namespace
}  // namespace sinter
