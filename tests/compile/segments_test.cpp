// Host actions: they see what was computed before them and are seen by what comes after, no call moves across them,
// and they run beside later ones.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "autograd/tape.h"
#include "compile/compiled.h"
#include "compile/host_queue.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "support/gpu.h"
#include "support/random_program.h"

namespace sinter {
namespace {

using compile::Compiled;

constexpr DeviceType cpu = DeviceType::cpu;

Tensor values(const Dims& dims, uint64_t seed, DeviceType device = cpu) {
  Tensor t = empty(dims, DType::f32, device);
  fill_normal(t, seed, 1, 1);
  return t;
}

// out = in + 1, by way of the host's memory.
void add_one(DeviceType device, const KernelCall& call) {
  std::vector<float> host(size_t(numel(call.in[0])));
  DeviceBackend& backend = backend_of(device);
  void* stream = current_stream(device);
  backend.copy_to_host(host.data(), call.in[0].data, host.size() * sizeof(float), stream);
  for (float& x : host) x += 1;
  backend.copy_from_host(call.out[0].data, host.data(), host.size() * sizeof(float), stream);
}

void expect_values_through_the_host(DeviceType device) {
  auto step = [device](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2, z = empty(y.dims(), y.dtype(), device);
    host_action([device](const KernelCall& c) { add_one(device, c); }, std::array{&y}, std::array{&z});
    Tensor beside = tanh(in[0]);
    return std::vector{z * 3, y + beside};
  };
  Compiled compiled(step, device);
  for (uint64_t i = 0; i < 6; ++i) {
    Tensor x = values({100}, i, device);
    std::vector<Tensor> eager = step({x}), replayed = compiled({x});
    for (size_t k = 0; k < eager.size(); ++k) EXPECT_TRUE(same_bits(eager[k], replayed[k])) << "output " << k;
  }
  EXPECT_EQ(compiled.traces(), 1u);
  const compile::Executable& e = *compiled.compilation().executable;
  if (backend_of(device).captures()) {
    EXPECT_EQ(e.captured_pieces(), 2u);
  }
}
TEST(Segments, ValuesPassThroughTheHost) { expect_values_through_the_host(cpu); }
TEST(SegmentsGpu, ValuesPassThroughTheHost) {
  SINTER_REQUIRE_GPU();
  expect_values_through_the_host(DeviceType::cuda);
}

// What an action does with our own calls runs beside segments that are being captured.
TEST(SegmentsGpu, ActionsMayUseTheDevice) {
  SINTER_REQUIRE_GPU();
  constexpr DeviceType cuda = DeviceType::cuda;
  Tensor seen = zeros({100}, DType::f32, cuda);
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2;
    host_action(
        [&](const KernelCall&) {
          fill(seen, item(sum(seen)) + 1);
          synchronize(cuda);
        },
        std::array{&y});
    return std::vector{affine(tanh(in[0]), 2, 1)};
  };
  Tensor x = values({100}, 1, cuda);
  Compiled compiled(step, cuda);
  double expected = 0;
  for (int i = 0; i < 5; ++i) {
    compiled({x});
    expected = 100 * expected + 1;
    EXPECT_FLOAT_EQ(float(to_vector(seen)[0]), float(expected));
  }
  EXPECT_EQ(compiled.compilation().executable->captured_pieces(), 2u);
}

// Those without operands are called in their order, as calls are submitted.
void expect_marks_in_order(DeviceType device) {
  std::vector<int> marks;
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor x = in[0];
    for (int i = 0; i < 3; ++i) {
      x = affine(tanh(x), 1, 1);
      host_action([&marks, i](const KernelCall&) { marks.push_back(i); });
    }
    return std::vector{x * 2};
  };
  Compiled compiled(step, device);
  Tensor x = values({8}, 1, device);
  for (int i = 0; i < 3; ++i) {
    marks.clear();
    Values replayed = to_vector(compiled({x})[0]);
    EXPECT_EQ(marks, (std::vector{0, 1, 2}));
    EXPECT_EQ(replayed, to_vector(step({x})[0]));
  }
}
TEST(Segments, MarksComeInOrder) { expect_marks_in_order(cpu); }
TEST(SegmentsGpu, MarksComeInOrder) {
  SINTER_REQUIRE_GPU();
  expect_marks_in_order(DeviceType::cuda);
}

// An action that waits for something that is submitted after it: were it waited for at once, that would never come.
void expect_actions_beside_later_segments(DeviceType device) {
  std::atomic<bool> passed;
  std::atomic<int> late;
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2;
    host_action(
        [&](const KernelCall&) {
          auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
          while (!passed && std::chrono::steady_clock::now() < until) std::this_thread::yield();
          late += !passed;
        },
        std::array{&y});
    Tensor z = tanh(in[0]);  // touches nothing of its
    host_action([&](const KernelCall&) { passed = true; });
    return std::vector{affine(z, 1, 1)};
  };
  Tensor x = values({8}, 1, device);
  Compiled compiled(step, device);
  late = 0;
  for (int i = 0; i < 3; ++i) {
    passed = false;
    compiled({x});
    EXPECT_EQ(late, 0);
  }
}
TEST(Segments, ActionsRunBesideLaterSegments) { expect_actions_beside_later_segments(cpu); }
TEST(SegmentsGpu, ActionsRunBesideLaterSegments) {
  SINTER_REQUIRE_GPU();
  expect_actions_beside_later_segments(DeviceType::cuda);
}

// The plan gives memory out again as soon as no call needs it; an action may still be reading it.
TEST(Segments, MemoryIsLeftAloneWhileAnActionReadsIt) {
  std::vector<float> seen;
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor y = affine(in[0], 2, 1);
    host_action(
        [&](const KernelCall& c) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          const float* p = c.in[0].as<float>();
          seen.assign(p, p + numel(c.in[0]));
        },
        std::array{&y});
    y = {};
    Tensor x = in[0];
    for (int i = 0; i < 6; ++i) x = matmul(x, x);  // each in memory that was used before
    return std::vector{sum(x)};
  };
  Tensor x = values({16, 16}, 3) * 0.1;
  Values expected = to_vector(affine(x, 2, 1));
  Compiled compiled(step, cpu);
  for (int i = 0; i < 3; ++i) {
    compiled({x});
    EXPECT_EQ(Values(seen.begin(), seen.end()), expected);
  }
}

// The meta device computes nothing that an action could read; those that read nothing are called.
TEST(Segments, MetaCallsOnlyMarks) {
  int marks = 0, reads = 0;
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2;
    host_action([&](const KernelCall&) { ++reads; }, std::array{&y});
    host_action([&](const KernelCall&) { ++marks; });
    return std::vector{tanh(y)};
  };
  Tensor x = empty({8}, DType::f32, DeviceType::meta);
  Compiled compiled(step, DeviceType::meta);
  compiled({x}), compiled({x});
  EXPECT_EQ(marks, 2);
  EXPECT_EQ(reads, 0);
}

TEST(Segments, AnActionThatFailsFailsTheStepAndNotTheNext) {
  bool fails = true;
  int later = 0;
  auto step = [&](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2;
    host_action(
        [&](const KernelCall&) {
          if (fails) fail(ErrorKind::peer, "the other side has gone");
        },
        std::array{&y});
    host_action([&](const KernelCall&) { ++later; }, std::array{&y});
    return std::vector{affine(y, 1, 1)};
  };
  Compiled compiled(step, cpu);
  Tensor x = values({8}, 1);
  EXPECT_TRUE(mentions(error_of(ErrorKind::peer, [&] { compiled({x}); }), {"the other side has gone"}));
  EXPECT_EQ(later, 0);
  fails = false;
  EXPECT_TRUE(same_bits(compiled({x})[0], affine(x * 2, 1, 1)));
  EXPECT_EQ(later, 1);
}

int count(const Compiled& c, const OpDef& op) {
  int n = 0;
  for (const compile::Node& node : c.compilation().executable->graph().nodes) n += node.op == &op;
  return n;
}

TEST(Segments, NoPassMovesCallsAcross) {
  Tensor w = values({50, 24}, 2), x = values({12, 24}, 1);
  Tensor targets = from_vector(std::vector<int64_t>(12, 3), {12}, cpu);
  require_grad(w).grad = empty(w.dims(), w.dtype(), cpu);
  auto training = [&](bool cut) {
    return [&, cut](const std::vector<Tensor>&) {
      zero_grad(w);
      Tensor loss = cross_entropy(matmul(x, w, false, true), targets);
      if (cut) host_action([](const KernelCall&) {});
      backward(loss);
      return std::vector{loss.detach()};
    };
  };
  Compiled whole(training(false), cpu), cut(training(true), cpu);
  Values loss = to_vector(whole({})[0]), gradient = to_vector(grad_of(w));
  EXPECT_EQ(count(whole, ops::cross_entropy_in_place), 1);
  EXPECT_EQ(to_vector(cut({})[0]), loss);
  EXPECT_EQ(to_vector(grad_of(w)), gradient);
  EXPECT_EQ(count(cut, ops::cross_entropy_in_place), 0) << "the loss would become its gradient before the action";

  auto chain = [&](bool cut) {
    return [cut](const std::vector<Tensor>& in) {
      Tensor a = tanh(in[0]) * 2;
      if (cut) host_action([](const KernelCall&) {});
      return std::vector{affine(sigmoid(a), 1, 1)};
    };
  };
  Compiled one(chain(false), cpu), two(chain(true), cpu);
  EXPECT_TRUE(same_bits(one({x})[0], two({x})[0]));
  EXPECT_EQ(count(one, ops::fused), 1);
  EXPECT_EQ(count(two, ops::fused), 2);
}

// Actions after random calls of random programs: each sees the same numbers in every replay as in eager mode.
struct Log {
  std::mutex mutex;  // actions with operands have a thread of their own
  Values numbers;
  void add(double x) {
    std::lock_guard lock(mutex);
    numbers.push_back(x);
  }
  Values sorted() {  // those without operands are called at once
    std::sort(numbers.begin(), numbers.end());
    return std::exchange(numbers, {});
  }
};
class Acting : public Interceptor {
 public:
  Acting(uint64_t seed, Log& log) : rng_(seed), log_(log) {}
  void called(const OpCall& call, TensorPtrs, const Outputs& outputs) override {
    if (!call.op.kernel || outputs.n == 0 || outputs[0].dtype() != DType::f32 || integer(rng_, 0, 4) != 0) return;
    bool reads = integer(rng_, 0, 3) != 0;
    std::vector<const Tensor*> in;
    if (reads) in.push_back(&outputs[0]);
    host_action([&log = log_](const KernelCall& c) { log.add(c.n_in ? c.in[0].as<float>()[0] : -1); }, in);
  }

 private:
  Rng rng_;
  Log& log_;
};

TEST(Segments, RandomProgramsGiveActionsTheSameNumbers) {
  size_t acted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Program p = random_program(rng);
    std::vector<Tensor> leaves;
    for (const Dims& d : p.leaves) {
      leaves.push_back(tensor_of(normals(rng, d.numel()), d, DType::f32));
      require_grad(leaves.back()).grad = empty(d, DType::f32, cpu);
    }
    Log log;
    auto step = [&](const std::vector<Tensor>&) {
      Acting acting(seed, log);
      Listening listening(acting);
      for (const Tensor& l : leaves) zero_grad(l);
      Tensor loss = loss_of(p, leaves);
      backward(loss);
      return std::vector{loss.detach()};
    };
    Values loss = to_vector(step({})[0]), expected = log.sorted();
    acted += expected.size();
    Compiled compiled(step, cpu);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(to_vector(compiled({})[0]), loss) << describe(p);
      EXPECT_EQ(log.sorted(), expected) << describe(p);
    }
  }
  EXPECT_GT(acted, 200u);
}

TEST(HostQueue, RunsInOrderAndGivesUp) {
  compile::HostQueue queue;
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) queue.add([&done, i] { done.push_back(i); });
  queue.wait_for_all();
  ASSERT_EQ(done.size(), 100u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  queue.add([] { throw std::runtime_error("first"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // one that comes after the failure is dropped too
  int64_t last = queue.add([&done] { done.clear(); });
  EXPECT_THROW(queue.wait(last), std::runtime_error);
  EXPECT_EQ(done.size(), 100u);
  queue.give_up();
  queue.add([&done] { done.push_back(-1); });
  queue.wait_for_all();
  EXPECT_EQ(done.back(), -1);
}

}  // namespace
}  // namespace sinter
