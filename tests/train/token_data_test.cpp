// Files of tokens, what is refused of them, windows, and which of them a step takes.
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "core/error.h"
#include "ops/ops.h"
#include "support/gpu.h"
#include "support/temporary_folder.h"
#include "train/token_batches.h"

namespace sinter {
namespace {

class TokenFiles : public FolderTest {
 protected:
  std::string path(const std::string& name) {
    std::filesystem::create_directories(folder_);
    return (folder_ / name).string();
  }
  std::string file(const std::string& name, const std::string& bytes) {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  template <class T> static std::string bytes_of(const std::vector<T>& ids) {
    return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
  }
  static std::string header(int32_t magic, int32_t version, int32_t tokens) {
    std::vector<int32_t> words(256);
    words[0] = magic, words[1] = version, words[2] = tokens;
    return bytes_of(words);
  }
  static std::string refusal(const std::function<void()>& what) {
    try {
      what();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
      return e.what();
    }
    return "nothing was refused";
  }
  std::string refused(const std::string& name, TokenFile::Holds holds = TokenFile::Holds::ids) {
    return refusal([&] { TokenFile(name, holds); });
  }
  static std::vector<int64_t> all_of(const TokenFile& f) {
    std::vector<int64_t> ids(size_t(f.tokens()));
    f.read(0, ids);
    return ids;
  }
  static void expect_in(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  // Token i of the corpus is i.
  std::shared_ptr<const Corpus> counting(int64_t tokens, int64_t ctx) {
    std::vector<uint16_t> ids;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(uint16_t(i));
    std::vector<TokenFile> files;
    files.emplace_back(file("counting.bin", bytes_of(ids)), TokenFile::Holds::ids);
    return std::make_shared<Corpus>(std::move(files), ctx);
  }
};

TEST_F(TokenFiles, KnowsTheirFormats) {
  TokenFile text(file("a.txt", "ab\xff"), TokenFile::Holds::text);
  EXPECT_EQ(text.format(), TokenFormat::text);
  EXPECT_EQ(all_of(text), (std::vector<int64_t>{'a', 'b', 255}));
  TokenFile bare(file("bare.bin", bytes_of<uint16_t>({1, 50256, 65535})), TokenFile::Holds::ids);
  EXPECT_EQ(bare.format(), TokenFormat::uint16);
  EXPECT_EQ(all_of(bare), (std::vector<int64_t>{1, 50256, 65535}));
  TokenFile gpt2(file("gpt2.bin", header(20240520, 1, 2) + bytes_of<uint16_t>({7, 50256})), TokenFile::Holds::ids);
  EXPECT_EQ(gpt2.format(), TokenFormat::gpt2);
  EXPECT_EQ(all_of(gpt2), (std::vector<int64_t>{7, 50256}));
  TokenFile llama(file("llama.bin", header(20240801, 7, 2) + bytes_of<uint32_t>({7, 128255})), TokenFile::Holds::ids);
  EXPECT_EQ(llama.format(), TokenFormat::llama3);
  EXPECT_EQ(all_of(llama), (std::vector<int64_t>{7, 128255}));
  EXPECT_EQ(llama.largest_id(), 128255);
  TokenFile moved = std::move(llama);
  EXPECT_EQ(all_of(moved), (std::vector<int64_t>{7, 128255}));
}

TEST_F(TokenFiles, RefusesBadOnes) {
  auto text = TokenFile::Holds::text;
  expect_in(refused(path("none")), {"none", "cannot be opened", "check the path"});
  expect_in(refused(folder_.string()), {"is a folder"});
  expect_in(refused("/dev/null"), {"not a regular file"});
  expect_in(refused(file("empty", "")), {"is empty; give a file with tokens"});
  expect_in(refused(file("empty.txt", ""), text), {"is empty; give a file with text"});
  expect_in(refused(file("odd", std::string("\0\1\2", 3))), {"3 bytes, an odd number", "cut off"});
  expect_in(refused(file("prose", std::string(100, 'a'))), {"looks like text", "--text"});
  std::string ids = bytes_of<uint16_t>({1, 2, 3});
  expect_in(refused(file("ids", header(20240520, 1, 3) + ids), text), {"not text", "--tokens"});
  expect_in(refused(file("short", header(20240520, 1, 3).substr(0, 500))), {"500 bytes", "1024", "cut off"});
  expect_in(refused(file("old", header(20240520, 2, 3) + ids)), {"version 2", "byte 4", "reads version 1"});
  expect_in(refused(file("v", header(20240801, 1, 3) + ids)), {"version 1", "reads version 7"});
  expect_in(refused(file("cut", header(20240520, 1, 4) + ids)), {"4 tokens", "1032 bytes", "has 1030", "cut off"});
  expect_in(refused(file("long", header(20240520, 1, 2) + ids)), {"1028 bytes", "has 1030", "added"});
  expect_in(refused(file("none-in", header(20240520, 1, 0))), {"0 tokens", "byte 8"});
  expect_in(refused(file("negative", header(20240520, 1, -5))), {"-5 tokens"});
  expect_in(refused(file("swapped", header(int32_t(__builtin_bswap32(20240520)), 1, 3) + ids)), {"big-endian"});
}

TEST_F(TokenFiles, NamesTheFirstIdOutsideTheVocabulary) {
  std::vector<uint16_t> ids(3'000'000, 5);  // several blocks
  ids[2'500'000] = 300, ids[2'700'000] = 301;
  TokenFile f(file("large", header(20240520, 1, 3'000'000) + bytes_of(ids)), TokenFile::Holds::ids);
  f.check_ids(302);
  expect_in(refusal([&] { f.check_ids(300); }),
            {"token 2500000 (byte 5001024) is 300", "vocabulary of 300", "--vocab 302"});
  TokenFile text(file("t", "a\x80z"), TokenFile::Holds::text);
  text.check_ids(256);
  expect_in(refusal([&] { text.check_ids(128); }), {"token 1 (byte 1) is 128", "--vocab 129"});
}

TEST_F(TokenFiles, AreCutIntoWindows) {
  std::vector<TokenFile> files;
  files.emplace_back(file("a", "abcdefg"), TokenFile::Holds::text);  // 7 tokens: two windows of 3 and one more
  files.emplace_back(file("b", "uvwxyz"), TokenFile::Holds::text);   // one, and a rest of two
  Corpus corpus(std::move(files), 3);
  ASSERT_EQ(corpus.windows(), 3);
  std::string seen;
  for (int64_t w = 0; w < 3; ++w) {
    std::vector<int64_t> tokens(4);
    corpus.read(w, tokens);
    for (int64_t t : tokens) seen += char(t);
  }
  EXPECT_EQ(seen, "abcddefguvwx");
  expect_in(refusal([&] {
              std::vector<TokenFile> one;
              one.emplace_back(path("a"), TokenFile::Holds::text);
              Corpus too_long(std::move(one), 7);
            }),
            {"7 tokens, too short", "--ctx 6 or less"});
}

TEST_F(TokenFiles, TheLastWindowsAreForValidation) {
  auto corpus = counting(101, 5);
  Split s = split(corpus, 0.25);
  EXPECT_EQ(s.train.count(), 15);
  EXPECT_EQ(s.validation.count(), 5);
  std::vector<int64_t> window(6);
  s.validation.read(0, window);
  EXPECT_EQ(window[0], 75);
  EXPECT_EQ(split(corpus, 1e-9).validation.count(), 1);
  EXPECT_EQ(split(corpus, 0).validation.count(), 0);
  expect_in(refusal([&] { split(corpus, 1); }), {"--validation must be"});
  expect_in(refusal([&] { split(counting(6, 5), 0.1); }), {"of the 1 window of --ctx 5", "none is left"});
}

TEST(WindowOrder, IsAPermutationThatChangesWithEpochAndSeed) {
  for (int64_t n : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    WindowOrder order(n, 7), other(n, 8);
    std::vector<int64_t> first, second, with_other_seed;
    for (int64_t i = 0; i < n; ++i) {
      first.push_back(order.at(0, i)), second.push_back(order.at(1, i)), with_other_seed.push_back(other.at(0, i));
      ASSERT_GE(first.back(), 0);
      ASSERT_LT(first.back(), n);
    }
    EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), size_t(n));
    EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), size_t(n));
    if (n < 17) continue;
    EXPECT_NE(first, second);
    EXPECT_NE(first, with_other_seed);
    int64_t stayed = 0, neighbours = 0;
    for (size_t i = 0; i < size_t(n); ++i) stayed += first[i] == int64_t(i);
    for (size_t i = 1; i < size_t(n); ++i) neighbours += first[i] == first[i - 1] + 1;
    EXPECT_LT(stayed, 12);  // of a random permutation about one
    EXPECT_LT(neighbours, 12);
  }
}

// The step's windows in order, whoever takes them.
std::vector<int64_t> of_all(const WindowOrder& order, int64_t n, BatchShape shape, int64_t step) {
  std::vector<int64_t> all;
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank)
    for (int64_t micro = 0; micro < shape.accumulate; ++micro)
      for (int64_t w : windows_of(order, n, shape, step, micro)) all.push_back(w);
  return all;
}

TEST(WindowOrder, TheGlobalBatchIsTheSameOnAnyNumberOfRanks) {
  constexpr int64_t n = 101;
  WindowOrder order(n, 3);
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < 4 * n; ++step) {
    std::vector<int64_t> alone = of_all(order, n, {8, 1}, step);
    EXPECT_EQ(alone, of_all(order, n, {2, 4}, step));
    EXPECT_EQ(alone, of_all(order, n, {2, 2, 2}, step));
    EXPECT_EQ(alone, of_all(order, n, {1, 2, 4}, step));
    seen.insert(seen.end(), alone.begin(), alone.end());
  }
  for (auto epoch = seen.begin(); epoch + n <= seen.end(); epoch += n)
    EXPECT_EQ(std::set<int64_t>(epoch, epoch + n).size(), size_t(n)) << "not every window once an epoch";
}

TEST_F(TokenFiles, BatchesAreThoseOfTheirStep) {
  Windows windows = split(counting(1001, 10), 0).train;
  BatchShape shape{2, 3, 2, 1};
  WindowOrder order(windows.count(), 5);
  for (int64_t first : {0, 7}) {
    TokenBatches batches(windows, 5, shape, 1001, DeviceType::cpu, first);
    for (int64_t step = first; step < first + 5; ++step) {
      std::span<const Batch> micro = batches.next();
      std::vector<Batch> again = batches.of(step);
      ASSERT_EQ(micro.size(), 3u);
      for (size_t m = 0; m < 3; ++m) {
        std::vector<int64_t> which = windows_of(order, windows.count(), shape, step, int64_t(m));
        std::vector<double> tokens = to_vector(micro[m].tokens()), targets = to_vector(micro[m].targets());
        for (size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i], double(which[i / 10] * 10 + int64_t(i) % 10));
          EXPECT_EQ(targets[i], tokens[i] + 1);
        }
        EXPECT_EQ(to_vector(again[m].ids), to_vector(micro[m].ids));
      }
    }
  }
}

TEST_F(TokenFiles, ThatChangeAreNoticed) {
  Windows windows = split(counting(101, 10), 0).train;
  expect_in(refusal([&] {
              TokenBatches batches(windows, 0, {10}, 90, DeviceType::cpu, 0);
              batches.next();
            }),
            {"have changed since the run began"});
}

class TokenBatchesGpu : public TokenFiles {};

// The thread that prepares waits for the step that still reads what it is about to overwrite.
TEST_F(TokenBatchesGpu, AreThoseOfTheirStep) {
  SINTER_REQUIRE_GPU();
  Windows windows = split(counting(30001, 100), 0).train;
  TokenBatches batches(windows, 5, {8, 2}, 65536, DeviceType::cuda, 3);
  std::vector<Tensor> seen;
  for (int64_t step = 3; step < 40; ++step)
    for (const Batch& b : batches.next()) seen.push_back(copy(b.ids));
  for (size_t i = 0; i < seen.size(); ++i)
    EXPECT_EQ(to_vector(seen[i]), to_vector(batches.of(3 + int64_t(i) / 2)[i % 2].ids)) << i;
}

}  // namespace
}  // namespace sinter
