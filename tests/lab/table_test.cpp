// Tables as text: they keep to a width, and say what they leave out.
#include "lab/table.h"

#include <gtest/gtest.h>
#include <sstream>

#include "lab/bench/bench_model.h"
#include "lab/machine.h"
#include "lab/measure.h"
#include "lab/record.h"

namespace sinter::lab {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
size_t width_of(const std::string& s) {
  return size_t(std::count_if(s.begin(), s.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}
size_t widest(const std::string& text) {
  size_t most = 0;
  for (const std::string& line : lines_of(text)) most = std::max(most, width_of(line));
  return most;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Table sample() {
  Table t;
  t.title = "Times";
  t.columns = {{"size", true},
               {"batch"},
               {"median ms"},
               {"of little importance", false, 9},
               {"of some importance", false, 2},
               {"why", true, 0, Column::wrap}};
  t.keys = 2;
  t.rows = {{"small", "4", "1.234", "1", "2", "because it has × few words"},
            {"large", "4", "5.678", "3", "4", "because there are many more words in this one than fit in a line"}};
  t.notes = {"A note that is longer than the narrowest of the widths that are tried here, and is broken at spaces."};
  return t;
}

TEST(TextTable, KeepsToEveryWidthAndLosesNoWordOfWhatItShows) {
  for (size_t width : {60, 80, 100, 140}) {
    std::string text = render_text({sample()}, width);
    EXPECT_LE(widest(text), width) << text;
    EXPECT_TRUE(has(text, "5.678")) << text;
    EXPECT_TRUE(has(text, "line")) << "a cell that is continued keeps its end\n" << text;
  }
}

TEST(TextTable, SaysOnceWhatEveryRowShares) {
  std::string text = render_text({sample()}, 140);
  EXPECT_EQ(lines_of(text)[1], "batch 4");
  EXPECT_TRUE(has(text, "small"));
  EXPECT_FALSE(has(render_text({sample()}, 0), "batch 4")) << "with all columns it is one of them";
}

TEST(TextTable, LeavesOutTheLeastImportantFirstAndNamesIt) {
  std::string text = render_text({sample()}, 50);
  EXPECT_TRUE(has(text, "Left out to fit 50 columns: of little importance")) << text;
  EXPECT_TRUE(has(text, "--wide")) << text;
  EXPECT_FALSE(has(render_text({sample()}, 140), "Left out"));
}

TEST(TextTable, WithoutALimitShowsAll) {
  std::string text = render_text({sample()}, 0);
  for (const char* header : {"median ms", "of little importance", "of some importance", "fit in a line"})
    EXPECT_TRUE(has(text, header)) << text;
}

TEST(TextTable, CutsCellsThatMayBe) {
  Table t;
  t.columns = {{"ms"}, {"kernel", true, 0, Column::cut}};
  t.rows = {{"1", std::string(300, 'x')}};
  std::string text = render_text({t}, 80);
  EXPECT_LE(widest(text), 80u);
  EXPECT_TRUE(has(text, "…"));
}

TEST(TextTable, OtherFormatsKeepEveryColumn) {
  for (TableFormat f : {TableFormat::markdown, TableFormat::csv, TableFormat::latex})
    EXPECT_TRUE(has(render({sample()}, f), "of little importance"));
}

TEST(Wrapped, BreaksAtSpacesAndKeepsTheLead) {
  EXPECT_EQ(wrapped("  one two three", 10, "  "), "  one two\n    three\n");
  EXPECT_EQ(wrapped("short", 10), "short\n");
  EXPECT_EQ(wrapped("averyveryverylongword", 10), "averyveryverylongword\n");
}

// Records have room for ranks, and tables show how far they lie apart.
TEST(Ranks, StandInARecordAndAreShown) {
  BenchResult r;
  r.run.model = known_size("tiny");
  r.run.precision = precision_named("fp32");
  r.attention = "flash", r.mode = "eager";
  r.samples_ms = {10, 11};
  r.median_ms = 10.5, r.mean_ms = 10.5, r.std_ms = 0.5;
  r.ranks = {{0, 0, "GPU-a", {10, 11}}, {1, 1, "GPU-b", {12, 13}}};
  Json record = new_record("bench model", machine_block(DeviceType::cpu), Json::object());
  record["results"].push_back(r);
  EXPECT_EQ(record["results"][0]["ranks"][1],
            (Json{{"rank", 1}, {"host", 1}, {"device_uuid", "GPU-b"}, {"samples_ms", {12.0, 13.0}}}));
  std::string text = render_text(view_of(record).tables, 100);
  EXPECT_TRUE(has(text, "Ranks") && has(text, "GPU-b") && has(text, "12.50")) << text;
  r.ranks.reset();
  EXPECT_FALSE(Json(r).contains("ranks"));
}

}  // namespace
}  // namespace sinter::lab
