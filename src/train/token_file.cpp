#include "train/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "backend/cpu/thread_pool.h"
#include "core/check.h"

namespace sinter {
namespace {

constexpr int64_t header_words = 256;
constexpr uint32_t gpt2_magic = 20240520, gpt2_version = 1, llama3_magic = 20240801, llama3_version = 7;

bool is_magic(uint32_t word) { return word == gpt2_magic || word == llama3_magic; }

// Ids of 16 bits whose every byte is a letter would all lie above 8000; text looks like that from the beginning.
bool looks_like_text(std::span<const unsigned char> bytes) {
  constexpr size_t enough = 64, looked_at = 4096;
  if (bytes.size() < enough) return false;
  std::span<const unsigned char> first = bytes.first(std::min(bytes.size(), looked_at));
  return std::all_of(first.begin(), first.end(),
                     [](unsigned char c) { return (c >= ' ' && c < 127) || c == '\n' || c == '\r' || c == '\t'; });
}

// The largest of ids that lie side by side; a block at a time, by all threads.
template <class T> std::vector<int64_t> largest_of_blocks(const T* ids, int64_t n, int64_t block) {
  std::vector<int64_t> largest(size_t((n + block - 1) / block));
  parallel_pieces(int64_t(largest.size()), [&](int64_t b) {
    T most = 0;
    for (int64_t i = b * block, end = std::min(n, i + block); i < end; ++i) most = std::max(most, ids[i]);
    largest[size_t(b)] = int64_t(most);
  });
  return largest;
}

}  // namespace

const char* name_of(TokenFormat f) {
  switch (f) {
    case TokenFormat::text: return "text";
    case TokenFormat::uint16: return "uint16";
    case TokenFormat::gpt2: return "llm.c GPT-2";
    case TokenFormat::llama3: return "llm.c Llama 3";
  }
  return "?";
}

int64_t vocabulary_of(TokenFormat f) {
  switch (f) {
    case TokenFormat::text: return 256;
    case TokenFormat::uint16: return 0;
    case TokenFormat::gpt2: return 50257;
    case TokenFormat::llama3: return 128256;
  }
  return 0;
}

TokenFile::TokenFile(const std::string& path, Holds holds) : path_(path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused below, not waited for
  check(fd >= 0, "{}: cannot be opened ({}); check the path", path, std::strerror(errno));
  struct stat s {};
  void* mapped = MAP_FAILED;
  int error = 0;
  if (fstat(fd, &s) != 0 || (S_ISREG(s.st_mode) && s.st_size > 0 &&
                             (mapped = mmap(nullptr, size_t(s.st_size), PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED))
    error = errno;
  close(fd);
  check(error == 0, "{}: cannot be mapped into memory ({})", path, std::strerror(error));
  check(!S_ISDIR(s.st_mode), "{}: is a folder; name the files in it", path);
  check(S_ISREG(s.st_mode), "{}: is not a regular file, and only those can be mapped; copy what it gives into one",
        path);
  check(s.st_size > 0, "{}: is empty; give a file with {} in it", path, holds == Holds::text ? "text" : "tokens");
  data_ = static_cast<const unsigned char*>(mapped), bytes_ = s.st_size;
  try {
    find_format(holds);
  } catch (...) {
    munmap(mapped, size_t(bytes_));
    throw;
  }
}

TokenFile::~TokenFile() {
  if (data_) munmap(const_cast<unsigned char*>(data_), size_t(bytes_));
}

TokenFile::TokenFile(TokenFile&& o) noexcept
    : path_(std::move(o.path_)),
      data_(std::exchange(o.data_, nullptr)),
      bytes_(o.bytes_),
      header_bytes_(o.header_bytes_),
      width_(o.width_),
      tokens_(o.tokens_),
      format_(o.format_) {}

uint32_t TokenFile::word(int64_t i) const {
  uint32_t w = 0;
  std::memcpy(&w, data_ + 4 * i, 4);
  return w;
}

void TokenFile::find_format(Holds holds) {
  bool has_magic = bytes_ >= 4 && is_magic(word(0));
  if (holds == Holds::text) {
    check(!has_magic, "{}: is a file of token ids (llm.c's), not text; give it with --tokens", path_);
    tokens_ = bytes_;
    return;
  }
  if (!has_magic) {
    check(
        bytes_ < 4 || !is_magic(__builtin_bswap32(word(0))),
        "{}: is a file of token ids (llm.c's) with its bytes in big-endian order; write it on a little-endian machine",
        path_);
    check(!looks_like_text({data_, size_t(bytes_)}), "{}: looks like text, not like 16-bit ids; give it with --text",
          path_);
    check(bytes_ % 2 == 0,
          "{}: has {} bytes, an odd number, but ids without a header take 2 bytes each; it was cut off, or is of "
          "another format (sinter reads bare uint16, and llm.c's files with a header)",
          path_, bytes_);
    format_ = TokenFormat::uint16, width_ = 2, tokens_ = bytes_ / 2;
    return;
  }
  bool llama = word(0) == llama3_magic;
  format_ = llama ? TokenFormat::llama3 : TokenFormat::gpt2, width_ = llama ? 4 : 2;
  header_bytes_ = 4 * header_words;
  check(bytes_ >= header_bytes_,
        "{}: has {} bytes, less than the {} of the header it begins with ({}); it was cut off: make or copy it again",
        path_, bytes_, header_bytes_, name_of(format_));
  uint32_t version = llama ? llama3_version : gpt2_version;
  check(word(1) == version, "{}: version {} of {}'s format (byte 4), but sinter reads version {}; make it again", path_,
        word(1), name_of(format_), version);
  tokens_ = int32_t(word(2));
  check(tokens_ > 0,
        "{}: its header says {} tokens (byte 8); it must hold some, and fewer than 2147483648: make it again", path_,
        tokens_);
  int64_t expected = header_bytes_ + tokens_ * width_;
  check(bytes_ == expected,
        "{}: its header says {} tokens, which make {} bytes, but it has {}; {}: make or copy it again", path_, tokens_,
        expected, bytes_, bytes_ < expected ? "it was cut off" : "something was added to it");
}

int64_t TokenFile::id(int64_t at) const {
  const unsigned char* p = data_ + offset(at);
  uint32_t value = 0;
  std::memcpy(&value, p, size_t(width_));
  return value;
}

namespace {

template <class F> auto with_ids(const unsigned char* first, int64_t width, const F& f) {
  if (width == 1) return f(first);
  if (width == 2) return f(reinterpret_cast<const uint16_t*>(first));
  return f(reinterpret_cast<const uint32_t*>(first));
}

}  // namespace

int64_t TokenFile::largest_id() const {
  auto blocks = with_ids(data_ + header_bytes_, width_,
                         [&](auto* ids) { return largest_of_blocks(ids, tokens_, int64_t(1) << 20); });
  return *std::max_element(blocks.begin(), blocks.end());
}

void TokenFile::check_ids(int64_t vocab) const {
  if (width_ == 1 && vocab >= 256) return;
  int64_t largest = largest_id();
  if (largest < vocab) return;
  int64_t at = 0;
  while (id(at) < vocab) ++at;
  fail_with(
      ErrorKind::usage,
      "{}: token {} (byte {}) is {}, which is not in a vocabulary of {}; use --vocab {} or more, or make the file "
      "with the model's own tokenizer",
      path_, at, offset(at), id(at), vocab, largest + 1);
}

void TokenFile::read(int64_t first, std::span<int64_t> to) const {
  check(first >= 0 && first + int64_t(to.size()) <= tokens_, "{}: tokens {} to {} were asked for, but it has {}", path_,
        first, first + int64_t(to.size()), tokens_);
  with_ids(data_ + offset(first), width_, [&](auto* ids) { std::copy_n(ids, to.size(), to.begin()); });
}

}  // namespace sinter
