// A run may end at any moment, and a disk may refuse at any moment: the old checkpoint is there, or the new one.
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/checkpoints.h"
#include "support/file_faults.h"
#include "support/temporary_folder.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

// Over and over: a folder with checkpoints of steps 1 and 2, of which one is to be kept, and a save of step 3.
class CheckpointFaults : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    trainer_ = trainer_of({});
    loaded_ = trainer_of({.seed = 2});
    fs::create_directories(folder_);
    Checkpoints checkpoints(*trainer_, {old()});
    for (int64_t step : {1, 2}) {
      train(*trainer_, step - 1, step);
      EXPECT_EQ(saved(checkpoints, step), "");
    }
    states_[2] = state_of(*trainer_);
    train(*trainer_, 2, 3);
    states_[3] = state_of(*trainer_);
  }
  std::string old() const { return (folder_ / "old").string(); }
  std::string dir() const { return (folder_ / "run").string(); }
  void begin_anew() const {
    fs::remove_all(dir());
    fs::copy(old(), dir(), fs::copy_options::recursive);
  }
  CheckpointOptions options() const { return {dir(), 2, latest_checkpoint(dir())->folder}; }

  // What is there loads, and is one of the two; then a run goes on from it, and leaves nothing behind of the last.
  int64_t expect_whole(const std::string& what) {
    CheckpointInfo info = latest_checkpoint(dir()).value();
    EXPECT_TRUE(info.step == 2 || info.step == 3) << what;
    load_checkpoint(info, *loaded_);
    EXPECT_TRUE(state_of(*loaded_) == states_[info.step]) << what;
    {
      Checkpoints checkpoints(*loaded_, options());
      EXPECT_EQ(saved(checkpoints, 4), "") << what;
    }
    EXPECT_EQ(latest_checkpoint(dir())->step, 4) << what;
    std::vector<std::string> hidden;
    for (const auto& e : fs::directory_iterator(dir()))
      if (std::string name = e.path().filename(); name != ".lock" && name != "latest" && name.find("step_") != 0)
        hidden.push_back(name);
    EXPECT_TRUE(hidden.empty()) << what << ": " << hidden[0];
    return info.step;
  }

  std::unique_ptr<Trainer> trainer_, loaded_;
  std::map<int64_t, State> states_;
};

TEST_F(CheckpointFaults, DeathAtAnyCall) {
  std::map<int64_t, int> found;
  int call = 0;
  for (int code = FileFaults::died; code == FileFaults::died;) {
    begin_anew();
    ++call;
    pid_t child = fork();
    if (child == 0) {
      auto faults = FileFaults::die_at(call);
      Checkpoints checkpoints(*trainer_, options());
      checkpoints.save(3, Json::object());
      _exit(checkpoints.wait().at(0).error.empty() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << call;
    code = WEXITSTATUS(status);
    ++found[expect_whole(fmt::format("death at call {}", call))];
  }
  EXPECT_GT(found[2], 20);
  EXPECT_GT(found[3], 5);
}

// The disk is full from some call on: the save fails, the run knows, and once there is room the next one succeeds.
TEST_F(CheckpointFaults, AFullDisk) {
  begin_anew();
  int calls = 0;
  {
    Checkpoints checkpoints(*trainer_, options());
    auto faults = FileFaults::count();
    EXPECT_EQ(saved(checkpoints, 3), "");
    calls = faults.calls();
  }
  ASSERT_GT(calls, 30);
  int failures = 0;
  for (int error : {ENOSPC, EIO})
    for (int call = 1; call <= calls; call += error == EIO ? 3 : 1) {
      std::string what = fmt::format("{} from call {}", strerror(error), call);
      begin_anew();
      Checkpoints checkpoints(*trainer_, options());
      std::string message;
      {
        auto faults = FileFaults::fail_from(call, error);
        message = saved(checkpoints, 3);
      }
      EXPECT_TRUE(state_of(*trainer_) == states_[3]) << what;
      int64_t there = latest_checkpoint(dir())->step;
      if (message.empty()) {
        EXPECT_EQ(there, 3) << what;  // only what is left of older ones could not be removed
      } else {
        ++failures;
        EXPECT_TRUE(mentions(message, {dir(), strerror(error)})) << what;
        EXPECT_EQ(saved(checkpoints, 3), "") << what;
        EXPECT_EQ(latest_checkpoint(dir())->step, 3) << what;
      }
      load_checkpoint(*latest_checkpoint(dir()), *loaded_);
      EXPECT_TRUE(state_of(*loaded_) == states_[3]) << what;
    }
  EXPECT_GT(failures, calls);
}

// What a power failure would find.
TEST_F(CheckpointFaults, NothingIsNamedBeforeItIsOnTheDisk) {
  begin_anew();
  CheckpointOptions o = options();
  o.keep = 0;  // what is removed need not be
  Checkpoints checkpoints(*trainer_, o);
  auto faults = FileFaults::count();
  EXPECT_EQ(saved(checkpoints, 3), "");
  EXPECT_GT(faults.calls(), 10);
  EXPECT_EQ(faults.names_before_contents(), 0);
}

// Signals that come in between are no failure.
TEST_F(CheckpointFaults, Interruptions) {
  begin_anew();
  {
    Checkpoints checkpoints(*trainer_, options());
    auto faults = FileFaults::interrupt();
    EXPECT_EQ(saved(checkpoints, 3), "");
  }
  EXPECT_EQ(expect_whole("interrupted"), 3);
}

}  // namespace
}  // namespace sinter
