// Several executables over one arena: it is as large as the largest needs, and all of them
// keep giving the right results.
#include "compile/arena.h"

#include "compile/compiled.h"
#include "ops/ops.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

using compile::Arena;
using compile::Compiled;

Tensor numbers(int64_t n, DeviceType device) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(double(i % 7) - 3);
  return cast(to(from_vector(v, {n}, DeviceType::cpu), device), DType::f32);
}

// Results that pass through memory of the arena: with the plan off, each has its own.
std::vector<Tensor> work(const std::vector<Tensor>& in) { return {sum(square(affine(in[0], 2, 1)))}; }
double expected(const Tensor& x) { return item(work({x})[0]); }
const compile::CompileOptions unfused = {{"fuse", "plan"}};

void expect_right_results_while_it_grows(DeviceType device) {
  auto arena = std::make_shared<Arena>(device);
  Compiled one(work, device, unfused, arena), other(work, device, unfused, arena);
  Tensor small = numbers(1000, device), large = numbers(100000, device);
  int64_t small_bytes = 0;
  for (int round = 0; round < 4; ++round) {  // a GPU captures in the second, and again after the arena has grown
    EXPECT_EQ(item(one({small})[0]), expected(small));
    small_bytes = arena->bytes();
  }
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(item(other({large})[0]), expected(large));
    EXPECT_EQ(item(one({small})[0]), expected(small));
  }
  EXPECT_EQ(one.traces(), 1u);
  EXPECT_GT(arena->bytes(), small_bytes);
  EXPECT_EQ(arena->bytes(), other.compilation().executable->graph().arena_bytes);
  EXPECT_EQ(item(one({large})[0]), expected(large)) << "another shape takes the same memory";
  EXPECT_EQ(arena->bytes(), other.compilation().executable->graph().arena_bytes);
}

TEST(Arena, GrowsUnderExecutablesThatHaveRun) { expect_right_results_while_it_grows(DeviceType::cpu); }
TEST(ArenaGpu, GrowsUnderExecutablesThatHaveRun) {
  SINTER_REQUIRE_GPU();
  expect_right_results_while_it_grows(DeviceType::cuda);
}

TEST(Arena, IsNeverThereTwice) {
  CachingAllocator& allocator = allocator_of(DeviceType::cpu);
  Tensor small = numbers(1 << 16, DeviceType::cpu), large = numbers(1 << 17, DeviceType::cpu);
  Compiled step(work, DeviceType::cpu, unfused);
  step({small});
  int64_t first = step.compilation().executable->graph().arena_bytes;
  int64_t before = allocator.stats().allocated;
  allocator.reset_peak();
  step({large});
  int64_t second = step.compilation().executable->graph().arena_bytes;
  ASSERT_GT(second, first);
  EXPECT_EQ(allocator.stats().allocated - before, second - first + large.bytes()) << "and a place for the input";
  EXPECT_EQ(allocator.stats().peak_allocated, allocator.stats().allocated);
  step({small});
  EXPECT_EQ(allocator.stats().peak_allocated, allocator.stats().allocated) << "the smaller one fits in";
}

TEST(Arena, OutlivesTheStepsThatShareIt) {
  auto arena = std::make_shared<Arena>(DeviceType::cpu);
  Tensor small = numbers(10, DeviceType::cpu), large = numbers(1000, DeviceType::cpu);
  auto one = std::make_unique<Compiled>(work, DeviceType::cpu, unfused, arena);
  (*one)({small});
  one.reset();
  Compiled other(work, DeviceType::cpu, unfused, arena);
  EXPECT_EQ(item(other({large})[0]), expected(large)) << "growing asks nothing of what is gone";
}

}  // namespace
}  // namespace sinter
