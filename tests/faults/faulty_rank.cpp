// A rank that trains and then, at the step and place it is told, fails in the way it is told: for faults_test.sh.
//   faulty_rank BACKEND RANK STEP FAULT [TIMEOUT [SHARD]]
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "backend/device.h"
#include "dist/data_parallel.h"
#include "dist/world.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "train/trainer.h"

using namespace sinter;

namespace {

constexpr int64_t ctx = 16, vocab = 96;

DeviceType device() {
  const char* name = std::getenv("SINTER_TEST_DEVICE");
  return name && std::string(name) == "cuda" ? DeviceType::cuda : DeviceType::cpu;
}

// What no compiler sees through.
void segfault() {
  volatile int* nowhere = nullptr;
  *nowhere = 1;
}

// From here on others have so long: what came before is start-up.
void say_when() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::printf("fails at %lld\n", (long long)(now.tv_sec * 1000 + now.tv_nsec / 1000000));
  std::fflush(stdout);
}

void fail_now(const std::string& fault) {
  say_when();
  if (fault == "kill") kill(getpid(), SIGKILL);
  if (fault == "segv") segfault();
  if (fault == "exit") std::_Exit(7);
  if (fault == "stop") kill(getpid(), SIGSTOP);
  if (fault == "hang") sleep(1000);
  if (fault == "throw") throw Error(ErrorKind::other, "an exception, as asked for");
}

int run(int argc, char** argv) {
  if (argc < 5) return 2;
  std::string backend = argv[1], fault = argv[4];
  int bad_rank = std::atoi(argv[2]), bad_step = std::atoi(argv[3]);
  auto me = dist::rank_from(dist::process_environment());
  if (!me) return 2;
  bool bad = me->rank == bad_rank;
  if (bad && bad_step == 0) fail_now(fault);  // before it has met the others
  dist::WorldOptions options;
  options.timeout_s = argc > 5 ? std::atof(argv[5]) : 60;
  options.check_collectives = fault == "mismatch";
  dist::World world(*me, options);
  std::printf("rank %d is process %d\n", me->rank, int(getpid()));
  std::fflush(stdout);
  if (device() == DeviceType::cuda) prefer_gpu(me->local_rank);
  auto group = world.make_group(backend, {}, false, device());
  ModelConfig c;
  c.name = "test", c.d_model = 32, c.d_ff = 64, c.layers = 2, c.heads = 2, c.kv_heads = 2, c.vocab = vocab, c.ctx = ctx;
  TrainerOptions o;
  o.group = group.get();
  o.device = device();
  o.data_parallel.bucket_mb = 0.01;
  if (argc > 6) o.shard.level = shard_level_named(argv[6]);
  Trainer trainer(c, o, make_transformer);
  // The embedding's gradient is the last to arrive: collectives of all layers are under way.
  bool armed = false;
  auto& hooks = trainer.parameters().trainable_leaves().back().leaf->hooks;
  hooks.insert(hooks.begin(), [&](Leaf&) {
    if (armed) fail_now(fault);
  });
  for (int step = 1; step <= bad_step + 3; ++step) {
    world.begin_step(step);
    armed = bad && step == bad_step;
    // The others come later than this rank lives: it is inside a collective when it ends.
    if (fault == "inside" && step == bad_step) {
      if (bad) std::thread([] { usleep(300000), say_when(), kill(getpid(), SIGKILL); }).detach();
      else usleep(700000);
    }
    if (bad && step == bad_step && fault == "mismatch") {
      say_when();
      Tensor x = zeros({7}, DType::f32, device());
      all_reduce(x, *group);
      join_communication(device());
    }
    if (bad && step == bad_step && fault == "diverge") {
      say_when();
      const auto& e = trainer.parameters().entries()[2];
      trainer.parameters().load("master", e.name,
                                add(cast(e.value, DType::f32), full(e.dims, 1, DType::f32, device())));
    }
    trainer.step(random_batch(2, ctx, vocab, uint64_t(step) * 100 + uint64_t(me->rank), device()), 0.01);
    if (fault == "diverge" && step % 2 == 0) dist::check_replicas(*group, trainer.parameters(), step);
  }
  std::printf("rank %d has finished\n", me->rank);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    std::fflush(nullptr);
    std::_Exit(int(e.kind()));  // other threads may still wait inside a collective
  }
}
