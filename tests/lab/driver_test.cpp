// The one loop, with cases that are made up: turns, what does not fit, doubt, failures, interruptions, and what is
// kept.
#include "lab/driver.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/check.h"
#include "lab/measure.h"
#include "lab/record.h"
#include "support/temporary_folder.h"
#include "system/signals.h"

namespace sinter::lab {
namespace {

using Log = std::vector<std::string>;

// Writes down what is asked of it. Its rows stand in a record of `precision`, whose tables leave them out.
struct MadeUp : Case {
  MadeUp(std::string name, Log& log) : name(std::move(name)), log(log) {}
  std::string text() const override { return name; }
  plan::Fit fit() override {
    log.push_back(name + " fits?");
    return {too_large.empty(), 1, too_large, ""};
  }
  Json does_not_fit(const std::string& reason, int64_t) override {
    return {{"experiment", "made up"}, {"case", name}, {"status", "oom"}, {"reason", reason}};
  }
  bool run(const Turn& turn, Progress&) override {
    log.push_back(name + " turn " + std::to_string(turn.index + 1) + "/" + std::to_string(turn.count));
    if (on_run) on_run(turn);
    if (stops) return false;
    ++measured;
    return true;
  }
  Json rows() override {
    if (measured == 0) return Json::array();
    return Json::array({{{"experiment", "made up"}, {"case", name}, {"status", "ok"}, {"measured", measured}}});
  }
  std::string doubt() override { return std::exchange(doubts, ""); }
  void forget() override {
    log.push_back(name + " forgets");
    measured = 0;
  }
  std::vector<std::string> notes() const override {
    return note.empty() ? std::vector<std::string>{} : std::vector{note};
  }

  std::string name, too_large, doubts, note;
  Log& log;
  std::function<void(const Turn&)> on_run;
  bool stops = false;
  int measured = 0;
};

class Driver : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    std::filesystem::create_directories(folder_);
    output.json = folder_ / "record.json";
  }

  MadeUp& add(const std::string& name, bool new_group = true) {
    if (new_group || e.groups.empty()) e.groups.emplace_back();
    auto c = std::make_unique<MadeUp>(name, log);
    MadeUp& ref = *c;
    e.groups.back().cases.push_back(std::move(c));
    return ref;
  }
  int run_all() {
    e.command = "precision";
    e.config = Json::object();
    e.silent = true;
    testing::internal::CaptureStdout();
    try {
      int code = lab::run(e, output);
      testing::internal::GetCapturedStdout();
      return code;
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
  }
  Json results() const { return record()["results"]; }
  Json record() const { return read_record(output.json); }

  OutputOptions output;
  Experiment e;
  Log log;
};

TEST_F(Driver, ComparedCasesRunInTurnsAndOthersOneByOne) {
  add("a"), add("b", false), add("c");
  EXPECT_EQ(run_all(), 0);
  EXPECT_EQ(log, (Log{"a fits?", "b fits?", "a turn 1/2", "b turn 1/2", "a turn 2/2", "b turn 2/2", "c fits?",
                      "c turn 1/1"}));
  ASSERT_EQ(results().size(), 3u);
  EXPECT_EQ(results()[0]["measured"], 2);
  EXPECT_EQ(results()[2]["case"], "c");
}

TEST_F(Driver, AGroupMayRunWithoutTurns) {
  add("ours"), add("theirs", false), add("ours again", false);
  e.groups[0].in_turns = false;
  EXPECT_EQ(run_all(), 0);
  EXPECT_EQ(log.size(), 6u);
  EXPECT_EQ(log[3], "ours turn 1/1");
}

TEST(Turns, ShareAllPasses) {
  for (int64_t passes : {0, 1, 2, 5, 10})
    EXPECT_EQ((Turn{0, 2}.share(passes) + Turn{1, 2}.share(passes)), passes) << passes;
  EXPECT_EQ((Turn{0, 2}.share(5)), 3);
  EXPECT_EQ((Turn{}.share(5)), 5);
}

TEST_F(Driver, WhatDoesNotFitIsARowAndIsNotRun) {
  add("large").too_large = "needs more";
  add("small");
  EXPECT_EQ(run_all(), 0);
  EXPECT_EQ(log, (Log{"large fits?", "small fits?", "small turn 1/1"}));
  EXPECT_EQ(results()[0]["status"], "oom");
  EXPECT_EQ(results()[0]["reason"], "needs more");
}

TEST_F(Driver, RunningOutOfMemoryIsARowToo) {
  add("grows").on_run = [](const Turn&) { fail_with(ErrorKind::memory, "no memory left"); };
  add("small");
  EXPECT_EQ(run_all(), 0);
  EXPECT_EQ(results()[0]["status"], "oom");
  EXPECT_EQ(results()[1]["status"], "ok");
}

TEST_F(Driver, NothingFitsIsExitCodeThree) {
  add("large").too_large = "needs more";
  EXPECT_EQ(run_all(), 3);
}

TEST_F(Driver, DoubtfulResultsAreMeasuredAgainOnce) {
  add("fast").doubts = "more than the peak";
  EXPECT_EQ(run_all(), 0);
  EXPECT_EQ(log, (Log{"fast fits?", "fast turn 1/1", "fast forgets", "fast turn 1/1"}));
  EXPECT_EQ(results()[0]["measured"], 1);
}

TEST_F(Driver, AFailureKeepsWhatWasFinished) {
  add("first");
  add("same group", false).on_run = [](const Turn& t) {
    if (t.index == 1) fail_with(ErrorKind::peer, "a peer died");
  };
  EXPECT_THROW(run_all(), Error);
  // Both have a turn behind them, the first has two.
  ASSERT_EQ(results().size(), 2u);
  EXPECT_EQ(results()[0]["measured"], 2);
  EXPECT_EQ(results()[0]["status"], "ok");
  EXPECT_EQ(results()[1]["measured"], 1);
  EXPECT_EQ(results()[1]["status"], "interrupted") << "half of its passes are not all of them";
}

TEST_F(Driver, WhateverIsThrownKeepsWhatWasFinished) {
  add("first");
  add("second").on_run = [](const Turn&) { throw std::bad_alloc(); };
  EXPECT_THROW(run_all(), std::bad_alloc);
  ASSERT_EQ(results().size(), 1u);
}

TEST_F(Driver, ARecordOfFinishedGroupsIsOnDiskWhileTheNextRuns) {
  add("first");
  size_t seen = 0;
  add("second").on_run = [&](const Turn&) { seen = results().size(); };
  run_all();
  EXPECT_EQ(seen, 1u);
}

TEST_F(Driver, AnInterruptionKeepsFinishedTurnsAndStops) {
  add("first");
  add("second", false).stops = true;
  add("never");
  EXPECT_EQ(run_all(), 0) << "nobody pressed Ctrl-C here: the code is that of what there is";
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(log.back(), "second turn 1/2");
}

// What is measured in turns, forgotten and measured again.
struct Timed : MeasuredCase<Measurement> {
  explicit Timed(bool fails) : MeasuredCase(5), fails(fails) {}
  std::string text() const override { return "timed"; }
  std::optional<Measurement> measure(int64_t timed, Progress&) override {
    if (fails && confirmed) return {};
    Measurement m;
    m.wall_ms.assign(size_t(timed), confirmed ? 10 : 1);
    m.timed.assign(size_t(timed), true);
    return m;
  }
  Json result(const Measurement& m) override {
    return {{"experiment", "made up"}, {"status", "ok"}, {"samples_ms", m.timed_wall_ms()}};
  }
  std::string doubt_of(const Measurement& m) override { return m.wall_ms[0] < 5 ? "too fast" : ""; }
  void confirm_peaks() override { confirmed = true; }
  bool fails, confirmed = false;
};

TEST_F(Driver, AMeasurementInDoubtGivesWayToANewOne) {
  e.groups.emplace_back().cases.push_back(std::make_unique<Timed>(false));
  run_all();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0]["samples_ms"], (Json{10, 10, 10, 10, 10}));
}

TEST_F(Driver, AMeasurementInDoubtIsKeptWhenThereIsNoNewOne) {
  e.groups.emplace_back().cases.push_back(std::make_unique<Timed>(true));
  run_all();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0]["samples_ms"], (Json{1, 1, 1, 1, 1}));
}

TEST_F(Driver, OutputIsCheckedBeforeAnyWork) {
  add("a");
  output.table = folder_ / "table.docx";
  EXPECT_THROW(run_all(), Error);
  EXPECT_TRUE(log.empty());
}

TEST_F(Driver, AFileThatTheCommandReadsIsNotWrittenOver) {
  add("a");
  std::ofstream(output.json) << "mine";
  output.reads = {{"--config", output.json}};
  EXPECT_THROW(run_all(), Error);
  EXPECT_TRUE(log.empty());
  std::string text;
  std::ifstream(output.json) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(Driver, OtherFilesAreWrittenAfterTheRecordAndNotesOnce) {
  add("a").note = "careful", add("b").note = "careful";
  bool there = false;
  e.files = {{"--trace", folder_ / "trace.json", [&] {
                there = std::ifstream(output.json).good();
                return std::string("{}");
              }}};
  e.finish = [](Json& record) { record["derived"] = record["results"].size(); };
  EXPECT_EQ(run_all(), 0);
  EXPECT_TRUE(there);
  EXPECT_TRUE(std::ifstream(folder_ / "trace.json").good());
  EXPECT_EQ(record()["notes"], Json::array({"careful"}));
  EXPECT_EQ(record()["derived"], 2);
}

}  // namespace
}  // namespace sinter::lab
