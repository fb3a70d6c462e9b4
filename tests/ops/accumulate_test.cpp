// Writing into a given destination, and adding to one.
#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

class OpDestination : public testing::TestWithParam<OpCase> {};

Destination into(const std::vector<Tensor>& to, uint32_t accumulate) {
  Destination d;
  for (size_t j = 0; j < to.size(); ++j) d.out[j] = &to[j];
  d.accumulate = accumulate;
  return d;
}

// The types output j can be written in.
std::vector<DType> types_for(const OpDef& op, int j, DType natural) {
  std::vector<DType> types{natural};
  if (op.writes_any_float >> j & 1) types = {DType::f64, DType::f32, DType::bf16, DType::f16};
  if ((op.writes_fp32 >> j & 1) && is_16bit(natural)) types = {natural, DType::f32};
  return types;
}

TEST_P(OpDestination, AddsWhereTheTableSaysSo) {
  const OpCase& c = GetParam();
  for (DType type : {DType::f64, DType::f32, DType::bf16}) {
    std::vector<Tensor> inputs = make_inputs(c, type);
    Outputs plain = call(c, inputs), exact = call(c, as_f64(inputs));
    if (c.op == &ops::cast) exact.t[0] = as_f64(inputs)[0];  // its own type would round
    for (int j = 0; j < plain.n; ++j)
      for (DType t : types_for(*c.op, j, plain[j].dtype())) {
        SCOPED_TRACE(std::string(name_of(type)) + " into " + name_of(t) + ", output " + std::to_string(j));
        Rng rng(5);
        std::vector<Tensor> to;
        Values before;
        for (int k = 0; k < plain.n; ++k)
          to.push_back(random_tensor(rng, plain[k].dims(), k == j ? t : plain[k].dtype()));
        before = to_vector(to[size_t(j)]);
        double rounding = 1.01 * roundoff(t), inside = type == DType::f64 && t == DType::f64 ? 1e-14 : 1e-5;
        if (c.op->accumulates >> j & 1) {
          Destination d = into(to, 1u << j);
          Outputs out = call(c, inputs, &d);
          EXPECT_EQ(out[j].data(), to[size_t(j)].data());
          Values expected = to_vector(exact[j]);
          for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
          // A 16-bit destination is rounded once or twice: the result, and the sum.
          EXPECT_TRUE(near(to_vector(to[size_t(j)]), expected, rounding, inside + (is_16bit(t) ? 2 * rounding : 0)));
        } else {
          Destination d = into(to, 1u << j);
          EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { call(c, inputs, &d); }), {c.op->name, "added to"}));
          d.optional = true;
          EXPECT_NE(call(c, inputs, &d)[j].data(), to[size_t(j)].data()) << "fresh memory instead";
        }
        Destination d = into(to, 0);
        call(c, inputs, &d);
        EXPECT_TRUE(near(to[size_t(j)], exact[j], rounding, inside)) << "overwritten";
      }
  }
}

TEST_P(OpDestination, WrongShapeIsRefused) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f32);
  Tensor wrong = zeros({3, 1, 4, 1, 5}, DType::f32, DeviceType::cpu);
  Destination d = into({wrong}, 0);
  d.out[0] = &wrong;
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { call(c, inputs, &d); }), {c.op->name, "(3, 1, 4, 1, 5)"}));
}

INSTANTIATE_TEST_SUITE_P(Table, OpDestination, testing::ValuesIn(kernel_cases()), case_name);

TEST(CopyInto, AnyStridesAnyTypes) {
  Rng rng(7);
  Tensor from = random_tensor(rng, {3, 4, 5}, DType::f64);
  for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (Layout layout : layouts_for(3)) {
      Tensor to = with_layout(zeros({3, 4, 5}, type, DeviceType::cpu), layout);
      copy_into(to, from);
      EXPECT_TRUE(near(to, from, 1.01 * roundoff(type), 0)) << name_of(type) << " " << name_of(layout);
      add_into(to, from);
      EXPECT_TRUE(near(to, affine(from, 2, 0), 2.02 * roundoff(type), 0)) << name_of(type) << " " << name_of(layout);
    }
}

}  // namespace
}  // namespace sinter
