// Whatever bytes a model makes are shown as text, and end where they are told to.
#include "lab/generate/safe_text.h"

#include "support/values.h"

namespace sinter::lab {
namespace {

TEST(SafeText, TextStaysAsItIs) {
  for (const char* text : {"", "plain\n\ttext", "naïve 日本語 🙂", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"})
    EXPECT_EQ(safe_text(text), text);
}

TEST(SafeText, WhatIsNoTextIsEscaped) {
  EXPECT_EQ(safe_text("a\x1b[31m"), "a\\x1b[31m") << "a terminal would obey it";
  EXPECT_EQ(safe_text(std::string("\0\r\x7f", 3)), "\\x00\\x0d\\x7f");
  EXPECT_EQ(safe_text("\xc2\x9b"), "\\xc2\\x9b") << "the same in two bytes";
  EXPECT_EQ(safe_text("\xff\xfe x"), "\\xff\\xfe x");
  EXPECT_EQ(safe_text("\xc0\xaf"), "\\xc0\\xaf") << "a longer form than needed";
  EXPECT_EQ(safe_text("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(safe_text("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(safe_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
  EXPECT_EQ(safe_text("\xe6\x97"), "\\xe6\\x97") << "cut off";
  EXPECT_EQ(safe_text("\xe6日"), "\\xe6日");
}

TEST(SafeText, BytesMayComeOneByOne) {
  Rng rng(1);
  std::string bytes = "日本語 \xff é";
  for (int i = 0; i < 3000; ++i) bytes += char(integer(rng, 0, 256));
  SafeText text;
  std::string pieces;
  for (char c : bytes) pieces += text.add(std::string(1, c));
  pieces += text.end();
  EXPECT_EQ(pieces, safe_text(bytes));
}

TEST(SafeText, ACharacterIsHeldBackUntilItIsWhole) {
  SafeText text;
  EXPECT_EQ(text.add("\xe6\x97"), "");
  EXPECT_EQ(text.add("\xa5"), "日");
}

std::string until(const std::string& stop, const std::vector<std::string>& pieces, bool& found) {
  StopText text(stop);
  std::string out;
  for (const std::string& p : pieces) out += text.add(p);
  found = text.found();
  return out + text.end();
}

TEST(StopText, EndsBeforeItHoweverItComes) {
  bool found = false;
  EXPECT_EQ(until("END", {"some text END more"}, found), "some text ");
  EXPECT_TRUE(found);
  EXPECT_EQ(until("END", {"some E", "N", "D", "END"}, found), "some ");
  EXPECT_TRUE(found);
  EXPECT_EQ(until("aab", {"a", "a", "a", "b", "c"}, found), "a") << "a beginning that turned out to be another";
  EXPECT_TRUE(found);
  EXPECT_EQ(until("END", {"no EN", " here EN"}, found), "no EN here EN") << "what was held back comes at the end";
  EXPECT_FALSE(found);
  EXPECT_EQ(until("", {"any", "thing"}, found), "anything");
  EXPECT_FALSE(found);
}

TEST(StopText, NothingIsHeldBackWithoutReason) {
  StopText text("\n\n");
  EXPECT_EQ(text.add("abc"), "abc");
  EXPECT_EQ(text.add("\n"), "");
  EXPECT_EQ(text.add("d"), "\nd");
}

}  // namespace
}  // namespace sinter::lab
