// Calls that are kept: copies and moved ones must point to operands of their own.
#include "core/owned_call.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "compile/graph.h"

namespace sinter {
namespace {

TensorRef row(int64_t length) {
  TensorRef t;
  t.rank = 1, t.dims[0] = length, t.strides[0] = 1;
  return t;
}
OwnedCall call_of(int64_t first) {
  OwnedCall call;
  call.variant = int(first);
  for (int i = 0; i < 30; ++i) call.add_input(row(first + i));
  call.add_output(row(first + 100));
  return call;
}
void expect_call_of(int64_t first, OwnedCall& call) {
  EXPECT_EQ(call.variant, first);
  ASSERT_EQ(call.n_in, 30);
  ASSERT_EQ(call.n_out, 1);
  EXPECT_EQ(call.in, &call.input(0));
  EXPECT_EQ(call.out, &call.output(0));
  for (int i = 0; i < 30; ++i) EXPECT_EQ(call.in[i].dims[0], first + i);
  EXPECT_EQ(call.out[0].dims[0], first + 100);
}

TEST(OwnedCall, CopiesHaveOperandsOfTheirOwn) {
  OwnedCall a = call_of(1), b = a, c;
  b.input(0).dims[0] = 7;
  expect_call_of(1, a);
  c = b;
  EXPECT_EQ(c.in[0].dims[0], 7);
  c.input(0).dims[0] = 1;
  expect_call_of(1, c);
  EXPECT_EQ(b.in[0].dims[0], 7);
  c = static_cast<const OwnedCall&>(c);
  expect_call_of(1, c);
}

TEST(OwnedCall, MovesTakeOperandsAlong) {
  OwnedCall a = call_of(1), b = std::move(a), c = call_of(2);
  expect_call_of(1, b);
  EXPECT_EQ(a.n_in + a.n_out, 0) << "nothing is left to point to";  // NOLINT(bugprone-use-after-move): the same
  c = std::move(b);
  expect_call_of(1, c);
  EXPECT_EQ(b.n_in + b.n_out, 0);  // NOLINT(bugprone-use-after-move): that is the point
  c.clear_inputs();
  EXPECT_EQ(c.n_in, 0);
  EXPECT_EQ(c.n_out, 1);
}

TEST(OwnedCall, KeepsThoseOfAPlainCall) {
  TensorRef in[] = {row(3), row(4)}, out = row(5);
  KernelCall plain;
  plain.in = in, plain.n_in = 2, plain.out = &out, plain.n_out = 1, plain.accumulate = 1;
  OwnedCall kept(plain);
  in[1] = out = {};
  EXPECT_EQ(kept.in[1].dims[0], 4);
  EXPECT_EQ(kept.out[0].dims[0], 5);
  EXPECT_TRUE(kept.accumulates(0));
}

TEST(Node, SurvivesListsThatGrowAndLoseNodes) {
  std::vector<compile::Node> nodes;
  for (int64_t i = 0; i < 100; ++i) {
    compile::Node n;
    n.call = call_of(i);
    n.in.resize(30), n.out.resize(1);
    nodes.push_back(n);
  }
  std::vector<compile::Node> copies = nodes;
  nodes.erase(nodes.begin() + 10, nodes.begin() + 20);
  std::rotate(nodes.begin(), nodes.begin() + 50, nodes.begin() + 51);
  nodes[0].clear_inputs(), nodes[0].clear_outputs();
  for (size_t i = 0; i < 100; ++i) expect_call_of(int64_t(i), copies[i].call);
  for (size_t i = 1; i < 90; ++i) {
    int64_t was = int64_t(i) - (i <= 50);
    expect_call_of(was < 10 ? was : was + 10, nodes[i].call);
  }
}

}  // namespace
}  // namespace sinter
