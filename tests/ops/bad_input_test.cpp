// What does not fit is refused at once, with the op's name and the values that clash.
#include "autograd/tape.h"
#include "ops/table.h"
#include "support/values.h"

namespace sinter {
namespace {

Tensor t(const Dims& dims, DType type = DType::f32) { return zeros(dims, type, DeviceType::cpu); }
Tensor ids(const std::vector<int64_t>& v) { return from_vector(v, {int64_t(v.size())}, DeviceType::cpu); }

struct BadCall {
  const char* name;
  std::function<void()> call;
  std::vector<std::string> must_mention;
};
void PrintTo(const BadCall& c, std::ostream* out) { *out << c.name; }

// clang-format off
std::vector<BadCall> bad_calls() {
  HeadsAttrs two_heads{2, 2, true};
  return {
      {"add_shapes", [] { add(t({2, 3}), t({4})); }, {"add", "(2, 3)", "(4)"}},
      {"sub_shapes", [] { sub(t({2, 3}), t({3, 2})); }, {"sub", "(2, 3)", "(3, 2)"}},
      {"mul_shapes", [] { mul(t({5}), t({2, 3})); }, {"mul", "(5)", "(2, 3)"}},
      {"div_shapes", [] { div(t({5}), t({2, 3})); }, {"div", "(5)", "(2, 3)"}},
      {"div_integers", [] { div(ids({1, 2}), ids({3, 4})); }, {"div", "int64"}},
      {"exp_integers", [] { exp(ids({1})); }, {"exp", "int64"}},
      {"where_mask_type", [] { where(t({2}), t({2}), t({2})); }, {"where", "bool", "fp32"}},
      {"where_shapes", [] { where(t({2}, DType::boolean), t({3}), t({3})); }, {"where", "(2)", "(3)"}},
      {"reshape_elements", [] { reshape(t({2, 3}), {4, 2}); }, {"reshape", "(2, 3)", "(4, 2)"}},
      {"reshape_unknown_size", [] { reshape(t({2, 3}), {4, -1}); }, {"reshape", "(2, 3)"}},
      {"reshape_two_unknown", [] { reshape(t({2, 3}), {-1, -1}); }, {"reshape", "(-1, -1)"}},
      {"reshape_zero_and_unknown", [] { reshape(t({2, 3}), {0, -1}); }, {"reshape", "(2, 3)"}},
      {"transpose_dimension", [] { transpose(t({2, 3}), 0, 2); }, {"dimension 2", "(2, 3)"}},
      {"slice_end", [] { slice(t({2, 3}), 1, 2, 2); }, {"slice", "[2, 4)", "(2, 3)"}},
      {"slice_start", [] { slice(t({2, 3}), 1, -1, 2); }, {"slice", "(2, 3)"}},
      {"slice_dimension", [] { slice(t({2, 3}), 5, 0, 1); }, {"dimension 5", "(2, 3)"}},
      {"expand_shapes", [] { expand(t({2, 3}), {2, 4}); }, {"expand", "(2, 3)", "(2, 4)"}},
      {"expand_to_fewer", [] { expand(t({2, 3}), {3}); }, {"expand", "(2, 3)", "(3)"}},
      {"sum_dimension", [] { sum(t({2, 3}), {2}); }, {"dimension 2", "(2, 3)"}},
      {"sum_integers", [] { sum(ids({1, 2})); }, {"sum", "int64"}},
      {"matmul_inner", [] { matmul(t({2, 3}), t({4, 5})); }, {"matmul", "(2, 3)", "(4, 5)"}},
      {"matmul_transposed", [] { matmul(t({2, 3}), t({3, 4}), false, true); }, {"matmul", "(2, 3)", "(3, 4)"}},
      {"matmul_batch", [] { matmul(t({2, 3, 4}), t({3, 4, 5})); }, {"matmul", "(2, 3, 4)", "(3, 4, 5)"}},
      {"matmul_rank", [] { matmul(t({2, 3, 4}), t({4, 5})); }, {"matmul", "(2, 3, 4)", "(4, 5)"}},
      {"matmul_vectors", [] { matmul(t({3}), t({3})); }, {"matmul", "(3)"}},
      {"matmul_types", [] { matmul(t({2, 3}), t({3, 4}, DType::bf16)); }, {"matmul", "fp32", "bf16"}},
      {"matmul_integers", [] { matmul(t({2, 3}, DType::i64), t({3, 4}, DType::i64)); }, {"matmul", "int64"}},
      {"linear_width", [] { linear(t({2, 3}), t({5, 4})); }, {"linear", "(2, 3)", "(5, 4)"}},
      {"linear_vector", [] { linear(t({3}), t({5, 3})); }, {"linear", "(3)"}},
      {"rms_norm_weight", [] { rms_norm(t({2, 3}), t({4})); }, {"rms_norm", "(2, 3)", "(4)"}},
      {"rms_norm_scalar", [] { rms_norm(t({}), t({1})); }, {"rms_norm", "()"}},
      {"layer_norm_weight", [] { layer_norm(t({2, 3}), t({4}), t({3})); }, {"layer_norm", "(2, 3)", "(4)"}},
      {"layer_norm_bias", [] { layer_norm(t({2, 3}), t({3}), t({3, 1})); }, {"layer_norm", "(2, 3)", "(3, 1)"}},
      {"softmax_scalar", [] { softmax(t({})); }, {"softmax", "()"}},
      {"softmax_causal_vector", [] { softmax(t({3}), {1, true, 0}); }, {"softmax", "(3)"}},
      {"softmax_integers", [] { softmax(ids({1, 2})); }, {"softmax", "int64"}},
      {"cross_entropy_rows", [] { cross_entropy(t({3, 5}), ids({1, 2})); }, {"cross_entropy", "(3, 5)", "(2)"}},
      {"cross_entropy_target",
       [] { cross_entropy(t({2, 5}), ids({1, 5})); }, {"cross_entropy", "5", "position 1", "--vocab"}},
      {"cross_entropy_negative", [] { cross_entropy(t({2, 5}), ids({-1, 0})); }, {"cross_entropy", "-1"}},
      {"cross_entropy_float_targets", [] { cross_entropy(t({2, 5}), t({2})); }, {"cross_entropy", "fp32"}},
      {"cross_entropy_nothing", [] { cross_entropy(t({0, 5}), ids({})); }, {"cross_entropy", "(0, 5)"}},
      {"swiglu_odd", [] { swiglu(t({2, 3})); }, {"swiglu", "(2, 3)"}},
      {"swiglu_scalar", [] { swiglu(t({})); }, {"swiglu", "()"}},
      {"embedding_id", [] { embedding(t({4, 3}), ids({0, 4})); }, {"embedding", "4", "position 1", "--vocab"}},
      {"embedding_strided_ids",
       [] { embedding(t({4, 3}), transpose(full({2, 3}, 4, DType::i64, DeviceType::cpu), 0, 1)); }, {"embedding", "4"}},
      {"embedding_negative", [] { embedding(t({4, 3}), ids({-2})); }, {"embedding", "-2"}},
      {"embedding_float_ids", [] { embedding(t({4, 3}), t({2})); }, {"embedding", "fp32"}},
      {"embedding_vector", [] { embedding(t({4}), ids({0})); }, {"embedding", "(4)"}},
      {"split_heads_width",
       [=] { split_heads(t({1, 2, 25}), t({2, 2}), t({2, 2}), two_heads); }, {"split_heads", "(1, 2, 25)"}},
      {"split_heads_odd",
       [=] { split_heads(t({1, 2, 18}), t({2, 1}), t({2, 1}), two_heads); }, {"split_heads", "3", "odd"}},
      {"split_heads_table",
       [=] { split_heads(t({1, 9, 24}), t({5, 2}), t({5, 2}), two_heads); }, {"split_heads", "(5, 2)", "9"}},
      {"split_heads_rank",
       [=] { split_heads(t({2, 24}), t({5, 2}), t({5, 2}), two_heads); }, {"split_heads", "(2, 24)"}},
      {"split_heads_sin", [=] { split_heads(t({1, 2, 24}), t({5, 2}), t({4, 2}), two_heads); }, {"split_heads"}},
      {"join_heads_rank", [] { join_heads(t({2, 3, 4})); }, {"join_heads", "(2, 3, 4)"}},
      {"adamw_shapes",
       [] { dispatch(ops::adamw, Attrs::of(AdamWAttrs{}), t({4}), t({5}), t({4}), t({4}), t({8}, DType::f64)); },
       {"adamw", "(4)", "(5)"}},
      {"copy_into_shapes", [] { copy_into(t({2}), t({3})); }, {"(2)", "(3)"}},
      {"from_vector_count", [] { from_vector<float>({1, 2, 3}, {2, 2}, DeviceType::cpu); }, {"3 values", "(2, 2)"}},
      {"negative_size", [] { empty({2, -1}, DType::f32, DeviceType::cpu); }, {"(2, -1)"}},
      {"item_of_many", [] { item(t({2})); }, {"item", "2 elements"}},
      {"empty_tensor", [] { add(Tensor(), t({2})); }, {"add", "input 0"}},
      {"empty_second", [] { add(t({2}), Tensor()); }, {"add", "input 1"}},
      {"two_devices",
       [] { add(t({2}), zeros({2}, DType::f32, DeviceType::meta)); }, {"add", "cpu", "meta", "to(device)"}},
  };
}
// clang-format on

class BadInput : public testing::TestWithParam<BadCall> {};

TEST_P(BadInput, IsRefusedWithTheReason) {
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, GetParam().call), GetParam().must_mention));
}

INSTANTIATE_TEST_SUITE_P(Ops, BadInput, testing::ValuesIn(bad_calls()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadInputs, BackwardOpsCheckTheirShapesToo) {
  auto refuses = [](const OpDef& op, const Attrs& attrs, const auto&... inputs) {
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { dispatch(op, attrs, inputs...); }), {op.name})) << op.name;
  };
  refuses(ops::linear_input_grad, Attrs::of(MatmulAttrs{false, false, true, false}), t({2, 3}), t({4, 5}));
  refuses(ops::linear_weight_grad, Attrs::of(MatmulAttrs{true, false, true, true}), t({2, 3}), t({4, 5}));
}

TEST(BadInputs, CudaWithNoDeviceSaysWhatToDo) {
  if (cuda_backend()) GTEST_SKIP() << "there is a GPU";
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { zeros({2}, DType::f32, DeviceType::cuda); }), {"cuda", "--device cpu"}));
}

// An error says where it happened.
TEST(BadInputs, LeaveNoTraceBehind) {
  Tensor x = t({2});
  require_grad(x);
  EXPECT_THROW(add(x, t({3})), Error);
  backward(sum(x));
  EXPECT_EQ(to_vector(grad_of(x)), (Values{1, 1}));
  EXPECT_TRUE(context().grad_enabled);
  EXPECT_FALSE(context().autocast.has_value());
}

}  // namespace
}  // namespace sinter
