// Measured peaks: kept with their spread, and doubted when read again.
#include "plan/peaks.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"
#include "system/host.h"
#include "system/json.h"

namespace sinter::plan {
namespace {

namespace fs = std::filesystem;

class PeaksTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (const char* old = std::getenv("SINTER_CACHE_DIR")) before_ = old;
    setenv("SINTER_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty()) unsetenv("SINTER_CACHE_DIR");
    else setenv("SINTER_CACHE_DIR", before_.c_str(), 1);
    FolderTest::TearDown();
  }

  static Peak copy() { return Peaks(DeviceType::cpu).copy_peak(); }
  static Json file() { return parse_json_file(peaks_cache_path()); }
  static void write(const std::string& text) { std::ofstream(peaks_cache_path()) << text; }
  static void write(const Json& j) { write(j.dump()); }
  static Json& entry(Json& file) { return file["machines"].begin().value()["copy"]; }

  std::string before_;
};

TEST_F(PeaksTest, AreTheBestOfSeveralSamplesAndAreKept) {
  Peak measured = copy();
  EXPECT_FALSE(measured.cached);
  EXPECT_GT(measured.lowest, 0);
  EXPECT_GE(measured.best, measured.lowest);
  EXPECT_GE(measured.samples, 5);
  Peak again = copy();
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(again.best, measured.best);
  EXPECT_EQ(again.lowest, measured.lowest);
  EXPECT_EQ(again.samples, measured.samples);
  EXPECT_EQ(again.date, measured.date);
}

TEST_F(PeaksTest, AreMeasuredAgainWhereTheFileCannotBeBelieved) {
  copy();
  const Json good = file();
  const Json old_format = {{good["machines"].begin().key(), {{"copy", 3e10}, {"product", {{"fp32", 1e11}}}}}};
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  for (const std::string& text : {old_format.dump(), deep, std::string("\0\1\2{", 4)}) {
    write(text);
    EXPECT_FALSE(copy().cached) << text.substr(0, 200);
    EXPECT_TRUE(copy().cached) << "the file was not mended";
  }
  struct Case {
    const char* field;
    Json value;
  };
  const std::vector<Case> cases = {{"best", "31e9"}, {"best", 1e300},   {"lowest", -1},
                                   {"samples", 1},   {"date", nullptr}, {"date", "9999-01-01T00:00:00Z"}};
  for (const auto& [field, value] : cases) {
    Json bad = good;
    if (value.is_null()) entry(bad).erase(field);
    else entry(bad)[field] = value;
    write(bad);
    Peak now = copy();
    EXPECT_FALSE(now.cached) << entry(bad).dump();
    EXPECT_LT(now.best, 1e13) << entry(bad).dump();
  }
}

TEST_F(PeaksTest, GainSamplesFromLaterProcesses) {
  Peak first = copy();
  Json j = file();
  entry(j)["date"] = now_text(3600);
  entry(j)["best"] = first.lowest;  // a busy moment
  write(j);
  Peak second = copy();
  EXPECT_EQ(second.samples, 2 * first.samples);
  EXPECT_GE(second.best, first.lowest);
  EXPECT_LE(second.lowest, first.lowest);
  EXPECT_GT(second.date, now_text(60));

  // Enough is enough, and what the machine never comes near is not believed.
  j = file();
  entry(j)["date"] = now_text(3600);
  entry(j)["samples"] = 100;
  write(j);
  EXPECT_TRUE(copy().cached);
  entry(j)["samples"] = 5;
  entry(j)["best"] = 5e12;
  write(j);
  EXPECT_LT(copy().best, 5e12);
}

TEST_F(PeaksTest, OfOldBuildsAreForgotten) {
  copy();
  Json j = file();
  std::string ours = j["machines"].begin().key();
  for (int i = 0; i < 40; ++i)
    j["machines"]["build " + std::to_string(i)]["copy"] = {
        {"best", 3e10}, {"lowest", 3e10}, {"samples", 5}, {"date", now_text(3600 * (100 - i))}};
  entry(j)["best"] = 0;
  write(j);
  copy();
  Json kept = file()["machines"];
  EXPECT_LE(kept.size(), 16u);
  EXPECT_TRUE(kept.contains(ours));
  EXPECT_TRUE(kept.contains("build 39"));
  EXPECT_FALSE(kept.contains("build 0"));
}

TEST_F(PeaksTest, DoWithoutAFile) {
  std::ofstream(folder_) << "not a folder";
  EXPECT_GT(copy().best, 0);
}

}  // namespace
}  // namespace sinter::plan
