// What definitions say about ops must agree with each other: passes of the compiler rely on it.
#include "ops/table.h"

#include <gtest/gtest.h>

namespace sinter {
namespace {

// Those that only passes put into a step are in no list.
std::vector<const OpDef*> every_op() {
  std::vector<const OpDef*> ops(all_ops().begin(), all_ops().end());
  for (const OpDef* op : {&ops::fused, &ops::host_action, &ops::adamw_product, &ops::cross_entropy_in_place,
                          &ops::attention_weights, &ops::attention_weights_backward})
    ops.push_back(op);
  return ops;
}

TEST(OpTable, KindsAgreeWithKernels) {
  for (const OpDef* op : every_op()) {
    SCOPED_TRACE(op->name);
    EXPECT_EQ(op->kind == OpKind::view || op->kind == OpKind::host, op->kernel == nullptr);
    EXPECT_EQ(op->kind == OpKind::product_update, op->kernel == &KernelTable::adamw_product);
    EXPECT_EQ(op->kind == OpKind::pointwise, op->kernel == &KernelTable::pointwise);
    EXPECT_EQ(op->kind == OpKind::fused, op->kernel == &KernelTable::fused);
    EXPECT_EQ(op->kind == OpKind::fill, op->kernel == &KernelTable::fill);
    EXPECT_EQ(op->is_product(), op->kernel == &KernelTable::matmul);
  }
}

TEST(OpTable, UpdatesChangeTheirParameters) {
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(op->name);
    if (op->kind == OpKind::update) {
      EXPECT_EQ(op->mutates & 0b11, 0b01u) << "the parameters, by their gradient";
    }
    if (op->with_product) {
      EXPECT_EQ(op->kind, OpKind::update);
      EXPECT_EQ(op->with_product->kind, OpKind::product_update);
    }
  }
}

}  // namespace
}  // namespace sinter
