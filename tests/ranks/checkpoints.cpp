// What any number of ranks at any level has saved, any other number at any other level loads, bit for bit.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "dist/sharding.h"
#include "ops/ops.h"
#include "ranks/small_model.h"
#include "ranks/world.h"
#include "system/checksum.h"
#include "train/checkpoint.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

struct Setting {
  ShardLevel level = ShardLevel::none;
  std::string dtype = "fp32";
  bool compiled = false;
  uint64_t seed = 1;
  std::string text() const { return fmt::format("{} {} {}", name_of(level), dtype, compiled ? "compiled" : "eager"); }
};

std::unique_ptr<Trainer> trainer_of(const Setting& s, ProcessGroup* group) {
  TrainerOptions o;
  o.precision = precision_named(s.dtype);
  o.seed = s.seed;
  o.optimizer = make_adamw({{.learning_rate = 0.01, .max_norm = 0.05}});
  o.device = test_device();
  o.group = group;
  o.shard.level = s.level;
  if (s.compiled) o.compiled = compile::CompileOptions{};
  return std::make_unique<Trainer>(small_model(), o, make_transformer);
}

std::vector<double> train(Trainer& trainer, ProcessGroup& group, int64_t from, int64_t to) {
  std::vector<double> losses;
  for (int64_t step = from; step < to; ++step)
    losses.push_back(trainer.step(sequences(step, group.rank() * per_rank, per_rank), 0.01));
  return losses;
}

// All that lasts, whole, on every rank.
std::vector<std::vector<double>> state_of(Trainer& trainer) {
  std::vector<std::vector<double>> all = {trainer.optimizer().state()};
  auto* sharding = dynamic_cast<dist::Sharding*>(trainer.parallel());
  for (const auto& e : trainer.parameters().entries())
    for (const Parameters::Role* role : lasting_roles(trainer.parameters()))
      all.push_back(to_vector(sharding ? sharding->gathered(role->name, e) : role->view(e)));
  return all;
}

// For ranks that have not saved it to compare with.
std::string digest(const std::vector<std::vector<double>>& state) {
  std::string bytes;
  for (const auto& v : state) bytes.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double));
  return checksum_text(checksum(bytes));
}

// A folder that all ranks know, and that is gone in the end.
class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / fmt::format("sinter-ranks-{}", getpid())).string();
    path_ = test_world().share(path);
    clear();
  }
  ~Folder() { clear(); }
  const std::string& path() const { return path_; }
  void clear() const {
    test_world().barrier();
    std::error_code ignored;
    if (test_world().rank() == 0) fs::remove_all(path_, ignored);
    test_world().barrier();
  }

 private:
  std::string path_;
};

std::vector<SaveResult> save(Trainer& trainer, const std::string& dir, int64_t step) {
  Checkpoints checkpoints(trainer, {dir});
  checkpoints.save(step, {{"step", step}});
  return checkpoints.wait();
}

constexpr ShardLevel levels[] = {ShardLevel::none, ShardLevel::broadcast, ShardLevel::optimizer, ShardLevel::gradients,
                                 ShardLevel::parameters};

TEST(RankCheckpoints, AreLoadedByAnyNumberOfRanksAtAnyLevel) {
  dist::World& w = test_world();
  Folder folder;
  // Groups of the first n ranks, and the levels that they train at; a group is null on the other ranks.
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  struct Kind {
    ProcessGroup* group;
    ShardLevel level;
  };
  std::vector<Kind> kinds;
  for (int n = 1; n <= w.size(); n = n == w.size() ? n + 1 : std::min(2 * n, w.size())) {
    std::vector<int> ranks;
    for (int r = 0; r < n; ++r) ranks.push_back(r);
    groups.push_back(test_group(test_backends()[0], ranks));
    for (ShardLevel level : levels)
      if (n > 1 || level == ShardLevel::none) kinds.push_back({groups.back().get(), level});
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Kind& writer = kinds[i];
    folder.clear();
    Setting s{.level = writer.level, .dtype = i % 2 ? "bf16" : "fp32"};
    std::string expected;
    if (writer.group) {
      auto trainer = trainer_of(s, writer.group);
      train(*trainer, *writer.group, 0, 2);
      auto results = save(*trainer, folder.path(), 2);
      ASSERT_TRUE(results.size() == 1 && results[0].error.empty()) << results[0].error;
      expected = digest(state_of(*trainer));
      EXPECT_TRUE(fs::exists(folder.path() + "/step_00000002/" + file_of_rank(writer.group->size() - 1)));
    }
    expected = w.share(expected);
    for (size_t j = 0; j < kinds.size(); ++j) {
      const Kind& reader = kinds[j];
      if (!reader.group || (w.size() > 2 && (i + j) % 3 > 0)) continue;  // two ranks try all pairs, more a third
      auto trainer = trainer_of({.level = reader.level, .dtype = s.dtype, .seed = 2}, reader.group);
      load_checkpoint(latest_checkpoint(folder.path()).value(), *trainer);
      EXPECT_EQ(digest(state_of(*trainer)), expected) << s.text() << ", read at level " << name_of(reader.level);
    }
  }
  w.barrier();
}

// Not the numbers alone: copies, graphs and what ranks gather follow.
TEST(RankCheckpoints, ARunGoesOnBitForBit) {
  dist::World& w = test_world();
  Folder folder;
  auto group = test_group(test_backends()[0], {}, true);
  bool on_gpu = test_device() == DeviceType::cuda;
  for (const char* dtype : {"fp32", "bf16", "fp16"})  // what differs most is bf16, whose copies follow
    for (bool compiled : {false, true}) {
      bool bf16 = dtype == std::string("bf16");
      if ((!bf16 || w.size() > 2) && !compiled) continue;
      // On a GPU a compiled step has other kernels than an eager one, and other bits.
      auto uninterrupted = trainer_of({.dtype = dtype, .compiled = compiled && on_gpu}, group.get());
      train(*uninterrupted, *group, 0, 2);
      folder.clear();
      auto results = save(*uninterrupted, folder.path(), 2);
      ASSERT_TRUE(results.at(0).error.empty()) << results[0].error;
      auto losses = train(*uninterrupted, *group, 2, 4);
      auto expected = state_of(*uninterrupted);
      for (ShardLevel level : levels) {
        if (!bf16 && level != ShardLevel::none && level != ShardLevel::parameters) continue;
        Setting s{level, dtype, compiled, 2};
        auto trainer = trainer_of(s, group.get());
        train(*trainer, *group, 0, 1);
        load_checkpoint(latest_checkpoint(folder.path()).value(), *trainer);
        EXPECT_EQ(train(*trainer, *group, 2, 4), losses) << s.text();
        EXPECT_TRUE(state_of(*trainer) == expected) << s.text();
      }
    }
}

// While it is on its way ranks only ask each other, and step.
TEST(RankCheckpoints, AreWrittenWhileRanksTrain) {
  Folder folder;
  auto group = test_group(test_backends()[0], {}, true);
  auto trainer = trainer_of({.level = ShardLevel::gradients}, group.get()),
       same = trainer_of({.level = ShardLevel::gradients}, group.get());
  Checkpoints checkpoints(*trainer, {folder.path(), 2});
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(train(*trainer, *group, step - 1, step), train(*same, *group, step - 1, step));
    if (step % 2 == 0) checkpoints.save(step, {});
    for (const SaveResult& r : checkpoints.poll()) {
      EXPECT_EQ(r.error, "");
      steps.push_back(r.step);
    }
  }
  for (const SaveResult& r : checkpoints.wait()) steps.push_back(r.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4, 6}));
  auto loaded = trainer_of({.level = ShardLevel::parameters, .seed = 2}, group.get());
  load_checkpoint(latest_checkpoint(folder.path()).value(), *loaded);
  EXPECT_TRUE(state_of(*loaded) == state_of(*trainer));
}

// The last rank may write no more than a page: all give the save up, know why, go on, and the next one succeeds.
TEST(RankCheckpoints, OneRanksFailureIsEverybodys) {
  dist::World& w = test_world();
  Folder folder;
  auto group = test_group(test_backends()[0], {}, true);
  auto trainer = trainer_of({.level = ShardLevel::optimizer}, group.get());
  train(*trainer, *group, 0, 1);
  Checkpoints checkpoints(*trainer, {folder.path()});
  checkpoints.save(1, {});
  EXPECT_EQ(checkpoints.wait().at(0).error, "");

  train(*trainer, *group, 1, 2);
  bool mine = w.rank() == w.size() - 1;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit little{4096, before.rlim_max};
  if (mine) setrlimit(RLIMIT_FSIZE, &little);
  checkpoints.save(2, {});
  std::string error = checkpoints.wait().at(0).error;
  if (mine) setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  for (const std::string& part : {fmt::format("rank {}", w.size() - 1), file_of_rank(w.size() - 1)})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 1);

  train(*trainer, *group, 2, 3);
  checkpoints.save(3, {});
  EXPECT_EQ(checkpoints.wait().at(0).error, "");
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 3);
  EXPECT_TRUE(fs::is_directory(folder.path() + "/step_00000003"));
}

// Only one rank reads the damaged piece, and only rank 0 sees who holds the folder; all refuse.
TEST(RankCheckpoints, RefusalsAreEverybodys) {
  dist::World& w = test_world();
  Folder folder;
  auto group = test_group(test_backends()[0], {}, true);
  auto trainer = trainer_of({.level = ShardLevel::parameters}, group.get());
  train(*trainer, *group, 0, 1);
  EXPECT_EQ(save(*trainer, folder.path(), 1).at(0).error, "");
  auto refused = [&](const std::function<void()>& work) {
    try {
      work();
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    }
    w.barrier();
  };
  refused([&] { save(*trainer, folder.path(), 2); });  // it holds a run
  CheckpointInfo info = latest_checkpoint(folder.path()).value();
  w.barrier();
  if (w.rank() == 0) {
    std::string path = info.folder + "/" + file_of_rank(w.size() - 1);
    std::FILE* f = std::fopen(path.c_str(), "r+b");
    std::fseek(f, -1, SEEK_END);
    std::fputc('x', f);
    std::fclose(f);
  }
  w.barrier();
  auto before = state_of(*trainer);
  refused([&] { load_checkpoint(info, *trainer); });
  EXPECT_TRUE(state_of(*trainer) == before);
}

}  // namespace
}  // namespace sinter
