// Logs of training, and the curves that are drawn of them.
#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"
#include "lab/train/log.h"
#include "lab/train/train.h"
#include "support/temporary_folder.h"

namespace sinter::lab {
namespace {

class Logs : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    std::filesystem::create_directories(folder_);
  }
  std::string path_ = (folder_ / "log.jsonl").string();
  std::string text() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static Json line(int64_t step, double loss) { return {{"step", step}, {"loss", loss}, {"elapsed_s", double(step)}}; }
};

TEST_F(Logs, GoOnWhereTheRunDoes) {
  {
    TrainingLog log(path_, {});
    for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(log.add(line(step, 1.0 / double(step))), "");
  }
  std::string first = text();
  EXPECT_THROW(TrainingLog(path_, {}), Error);
  EXPECT_EQ(text(), first);
  std::ofstream(path_, std::ios::app | std::ios::binary) << "{\"step\": 6, \"lo";  // killed in the middle
  {
    TrainingLog log(path_, 3);
    EXPECT_EQ(log.elapsed_s(), 3);
    log.add(line(4, 7));
  }
  std::vector<Json> lines = read_log(path_);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2], line(3, 1.0 / 3));
  EXPECT_EQ(lines[3], line(4, 7));
}

TEST_F(Logs, SayWhenTheyCannotBeWritten) {
  TrainingLog log("/dev/full", {});
  EXPECT_NE(log.add(line(1, 1)), "");
  EXPECT_EQ(log.add(line(2, 1)), "");  // once is enough
}

TEST_F(Logs, AreRecognised) {
  std::ofstream(path_) << "{\"schema\": \"sinter.record.v1\"}\n";
  EXPECT_FALSE(is_training_log(path_));
  std::ofstream(path_) << "{\"step\": 1, \"loss\": null}\n";
  EXPECT_TRUE(is_training_log(path_));
  EXPECT_FALSE(is_training_log(folder_.string()));
  EXPECT_FALSE(is_training_log((folder_ / "none").string()));
  std::ofstream(path_) << "{\"step\": 1}\n{\"loss\": 3}\n{\"step\": 3}\n";
  EXPECT_THROW(read_log(path_), Error);
}

TEST_F(Logs, AreShownLikeARecord) {
  std::ofstream(path_) << R"({"step": 1, "loss": 4.0, "tokens_per_s": 10})"
                       << "\n"
                       << R"({"step": 2, "loss": null, "tokens_per_s": 30})"
                       << "\n"
                       << R"({"step": 3, "loss": 2.0, "validation_loss": 2.5, "tokens_per_s": 20})"
                       << "\n";
  Json record = record_of_logs({path_, path_});
  ASSERT_EQ(record["results"].size(), 2u);
  const Json& row = record["results"][1];
  EXPECT_EQ(row["steps_done"], 3);
  EXPECT_EQ(row["first_loss"], 4.0);
  EXPECT_EQ(row["loss"], 2.0);
  EXPECT_EQ(row["validation_loss"], 2.5);
  EXPECT_EQ(row["tokens_per_s"], 20.0);
  View view = train_view(record);
  ASSERT_TRUE(view.chart.has_value());
  ASSERT_EQ(view.chart->series.size(), 4u);
  EXPECT_EQ(view.chart->categories, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(view.chart->series[0].values, (std::vector<std::optional<double>>{4.0, {}, 2.0}));
  EXPECT_EQ(view.chart->series[1].values, (std::vector<std::optional<double>>{{}, {}, 2.5}));
}

TEST(Curves, AreThinnedByMeans) {
  Curve c;
  for (int64_t step = 11; step <= 1010; ++step) c.steps.push_back(step), c.loss.push_back(double(step));
  c.validation_steps = {500, 1010}, c.validation_loss = {3, 2};
  Curve t = thinned(c, 100);
  ASSERT_EQ(t.steps.size(), 100u);
  EXPECT_EQ(t.steps[0], 20);
  EXPECT_EQ(t.loss[0], 15.5);
  EXPECT_EQ(t.steps.back(), 1010);
  EXPECT_EQ(t.loss.back(), 1005.5);
  EXPECT_EQ(t.validation_steps, c.validation_steps);
  EXPECT_EQ(thinned(c, 1000).steps, c.steps);
  // A short run beside a long one ends where it ends.
  Curve brief;
  brief.steps = {1, 2}, brief.loss = {5, 3};
  Chart chart = chart_of({{"long", c}, {"short", brief}});
  ASSERT_EQ(chart.series.size(), 3u);
  EXPECT_LE(chart.categories.size(), 200u);
  EXPECT_EQ(chart.categories.back(), "1010");
  EXPECT_EQ(chart.series[2].values[0], 4.0);
  EXPECT_FALSE(chart.series[2].values[1].has_value());
  EXPECT_FALSE(chart.series[0].values[0].has_value());  // its first step is 11, and a category has 6
}

}  // namespace
}  // namespace sinter::lab
