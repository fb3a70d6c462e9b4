// The same bits whatever the number of threads, and the same numbers whatever the instruction set.
#include "support/threads.h"

#include <deque>

#include "backend/cpu/stream.h"
#include "core/owned_call.h"
#include "support/op_cases.h"

namespace sinter {

namespace cpu_v3 {
const KernelTable& table();
}
namespace cpu_v4 {
const KernelTable& table();
}

namespace {

// Note [Products in blocks] of backend/cpu/gemm.cpp: the last bit of a GEMM may depend on how it is cut.
bool is_product(const OpDef& op) { return op.kernel == &KernelTable::matmul; }

class OpThreads : public testing::TestWithParam<OpCase> {};

TEST_P(OpThreads, OneTwoOrThreeGiveTheSameBits) {
  const OpCase& c = GetParam();
  for (DType type : {DType::f32, DType::bf16}) {
    std::vector<Tensor> inputs = make_inputs(c, type);
    Outputs one = [&] {
      Threads t(1);
      return call(c, inputs);
    }();
    for (int n : {2, 3}) {
      Threads t(n);
      Outputs out = call(c, inputs);
      for (int j = 0; j < out.n; ++j) {
        if (is_product(*c.op)) EXPECT_TRUE(near(out[j], one[j], 2 * roundoff(out[j].dtype()), 2e-6)) << n << " threads";
        else EXPECT_TRUE(same_bits(out[j], one[j])) << n << " threads, output " << j;
      }
    }
  }
}

// Calls the kernel of one table directly.
void run_on(const KernelTable& table, const OpCase& c, const std::vector<Tensor>& inputs, const Outputs& outputs) {
  OwnedCall k;
  k.variant = c.op->variant;
  k.attrs = c.sample.attrs;
  for (const Tensor& t : inputs) k.add_input(t.ref());
  for (int j = 0; j < outputs.n; ++j) k.add_output(outputs[j].ref());
  Tensor workspace;
  if (c.op->workspace && (k.workspace_bytes = c.op->workspace(k, DeviceType::cpu)) > 0) {
    workspace = empty({k.workspace_bytes}, DType::u8, DeviceType::cpu);
    k.workspace = workspace.data();
  }
  (table.*(c.op->kernel))(k);
}

TEST_P(OpThreads, BothInstructionSetsAgree) {
  if (!__builtin_cpu_supports("x86-64-v4")) GTEST_SKIP() << "this CPU has no AVX-512 (x86-64-v4)";
  const OpCase& c = GetParam();
  for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    std::vector<Tensor> inputs = make_inputs(c, type);
    Outputs v3 = call(c, inputs), v4 = call(c, inputs);
    run_on(cpu_v3::table(), c, inputs, v3);
    run_on(cpu_v4::table(), c, inputs, v4);
    for (int j = 0; j < v3.n; ++j) {
      double inside = v3[j].dtype() == DType::f64 && type == DType::f64 ? 1e-13 : 4e-6;
      EXPECT_TRUE(near(v4[j], v3[j], 2 * roundoff(v3[j].dtype()), inside)) << "output " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Larger, OpThreads, testing::ValuesIn(larger_cases()), case_name);

TEST(ThreadPool, CoversEveryIndexOnce) {
  Threads t(3);
  for (int64_t n : {1, 7, 1000, 4097})
    for (int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> seen(size_t(n), 0);
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
      });
      for (int s : seen) ASSERT_EQ(s, 1) << n << " by " << grain;
    }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  Threads t(2);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(parallel_for(100, 1,
                              [&](int64_t begin, int64_t end) {
                                if (begin <= 50 && 50 < end) throw Error(ErrorKind::other, "half way");
                              }),
                 Error);
    std::atomic<int64_t> sum{0};
    parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    ASSERT_EQ(sum.load(), 100);
  }
}

// A kernel's call that notes that it was made, by an address in its workspace.
struct Note {
  std::vector<int>* made;
  int number;
  int64_t ranges;  // to do in parallel
  std::atomic<int64_t> done{0};
  Note(std::vector<int>& to, int number_, int64_t ranges_) : made(&to), number(number_), ranges(ranges_) {}
  KernelCall call() {
    KernelCall c;
    c.workspace = this;
    return c;
  }
};
void make_note(const KernelCall& c) {
  Note& n = *static_cast<Note*>(c.workspace);
  parallel_for(n.ranges, 1, [&](int64_t begin, int64_t end) { n.done += end - begin; });
  n.made->push_back(n.number);  // one call at a time: nothing to lock
}
void refuse(const KernelCall&) { throw Error(ErrorKind::other, "no"); }

TEST(SideStream, MakesItsCallsInOrderWhileTheCallerWorksOn) {
  for (int threads : {2, 3, 7}) {
    Threads t(threads);
    cpu::SideStream stream;
    std::vector<int> made;
    std::deque<Note> notes;
    std::deque<KernelCall> calls;
    for (int i = 0; i < 200; ++i) {
      Note& n = notes.emplace_back(made, i, i % 5 * 40);
      stream.submit(make_note, calls.emplace_back(n.call()), {});
      std::atomic<int64_t> sum{0};
      parallel_for(i % 7 * 30, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      ASSERT_EQ(sum.load(), i % 7 * 30) << "the caller's own work";
      if (i % 50 == 20) {
        stream.wait(i - 5);
        for (int j = 0; j < i - 5; ++j) ASSERT_EQ(notes[size_t(j)].done.load(), j % 5 * 40);
        stream.wait(stream.submitted());
        ASSERT_EQ(made.size(), size_t(i + 1));
      }
    }
    stream.wait(stream.submitted());
    ASSERT_EQ(made.size(), 200u);
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(made[size_t(i)], i);
      EXPECT_EQ(notes[size_t(i)].done.load(), i % 5 * 40);
    }
  }
}

TEST(SideStream, ReportsAFailureOnceAndLivesOn) {
  Threads t(3);
  cpu::SideStream stream;
  std::vector<int> made;
  Note before(made, 1, 10), after(made, 2, 10), later(made, 3, 10);
  KernelCall first = before.call(), fails, second = after.call(), third = later.call();
  stream.submit(make_note, first, {}), stream.submit(refuse, fails, {}), stream.submit(make_note, second, {});
  EXPECT_THROW(stream.wait(3), Error);
  EXPECT_EQ(made, std::vector<int>{1}) << "what follows a failure is not done";
  stream.submit(make_note, third, {});
  stream.wait(4);
  EXPECT_EQ(made, (std::vector<int>{1, 3}));
}

// A call that holds until it is let go, as a collective does that waits for other ranks.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> passed{0};
};
void pass_gate(const KernelCall& c) {
  Gate& g = *static_cast<Gate*>(c.workspace);
  g.open.wait(false);
  ++g.passed;
}

// Note [Deferred waits]: neither the caller nor what waits for nothing is held up by a stream that waits.
TEST(ThreadStream, WaitingForItIsDeferredToTheCallThatNeedsIt) {
  for (int threads : {1, 3}) {
    Threads t(threads);
    cpu::ThreadStream communication(StreamRole::communication);
    cpu::SideStream updates;
    Gate gate;
    KernelCall held;
    held.workspace = &gate;
    std::vector<int> made;
    Note free(made, 1, 5), waits(made, 2, 5);
    KernelCall first = free.call(), second = waits.call();
    communication.submit(pass_gate, held, {});
    updates.submit(make_note, first, {});
    updates.wait_for(communication, 1);
    updates.submit(make_note, second, {});
    updates.wait(1);
    EXPECT_EQ(made, std::vector<int>{1});
    EXPECT_FALSE(updates.is_over(2));
    EXPECT_EQ(gate.passed.load(), 0);
    gate.open = true;
    gate.open.notify_all();
    updates.wait(2);
    EXPECT_EQ(made, (std::vector<int>{1, 2}));
    EXPECT_EQ(gate.passed.load(), 1);
  }
}

TEST(ThreadStream, WhatNeedsAFailedCallIsNotMade) {
  Threads t(2);
  cpu::ThreadStream communication(StreamRole::communication);
  cpu::SideStream updates;
  std::vector<int> made;
  Note waits(made, 1, 5), later(made, 2, 5);
  KernelCall fails, call = waits.call(), again = later.call();
  communication.submit(refuse, fails, {});
  while (!communication.is_over(1)) std::this_thread::yield();  // the harder case: it has failed already
  updates.wait_for(communication, 1);
  updates.submit(make_note, call, {});
  updates.wait(1);
  EXPECT_TRUE(made.empty());
  EXPECT_THROW(communication.wait(1), Error);
  communication.submit(make_note, again, {});
  communication.wait(2);
  EXPECT_EQ(made, std::vector<int>{2}) << "a failure that was reported is over";
}

TEST(ThreadStream, SaysWhatItRanWhenAndWhere) {
  cpu::record_streams(true);
  {
    cpu::ThreadStream communication(StreamRole::communication);
    Gate gate;
    gate.open = true;
    float x[3] = {};
    TensorRef operand;
    operand.data = x, operand.rank = 1, operand.dims[0] = 3, operand.strides[0] = 1;
    KernelCall call;
    call.in = &operand, call.n_in = 1;
    call.workspace = &gate;
    communication.submit(pass_gate, call, {"all_reduce", 5, true});
    communication.wait(1);
  }
  cpu::record_streams(false);
  std::vector<Activity> all = cpu::take_stream_record();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "all_reduce");
  EXPECT_EQ(all[0].kind, Activity::communication);
  EXPECT_EQ(all[0].range, 5u);
  EXPECT_EQ(all[0].bytes, 12);
  EXPECT_LE(all[0].begin_ns, all[0].end_ns);
  EXPECT_TRUE(cpu::take_stream_record().empty());
}

TEST(ThreadPool, NestedLoopsRunInTheCaller) {
  Threads t(2);
  std::atomic<int64_t> sum{0};
  parallel_for(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parallel_for(10, 1, [&](int64_t b, int64_t e) { sum += e - b; });
  });
  EXPECT_EQ(sum.load(), 80);
}

}  // namespace
}  // namespace sinter
