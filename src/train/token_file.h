// Files of tokens, mapped into memory: text, whose bytes are the tokens, and ids as tokenizers' scripts write them.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace sinter {

enum class TokenFormat {
  text,    // a byte each
  uint16,  // little-endian ids and nothing else (nanoGPT)
  gpt2,    // llm.c: a header of 256 int32 {20240520, 1, tokens, 0 …}, then uint16
  llama3   // llm.c: a header of 256 int32 {20240801, 7, tokens, 0 …}, then uint32
};
const char* name_of(TokenFormat f);
int64_t vocabulary_of(TokenFormat f);  // that files of the format are made with; 0: the format does not say

class TokenFile {
 public:
  enum class Holds { text, ids };
  // Refuses what cannot be read, is empty, or does not have the size that its header or its type asks for. Which format
  // ids have is found out.
  TokenFile(const std::string& path, Holds holds);
  ~TokenFile();
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;

  const std::string& path() const { return path_; }
  TokenFormat format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  int64_t largest_id() const;                             // reads all of it
  void check_ids(int64_t vocab) const;                    // the same; names the first that is not in the vocabulary
  void read(int64_t first, std::span<int64_t> to) const;  // within the file

 private:
  int64_t id(int64_t at) const;
  int64_t offset(int64_t at) const { return header_bytes_ + at * width_; }  // in bytes
  void find_format(Holds holds);
  uint32_t word(int64_t i) const;  // of the header

  std::string path_;
  const unsigned char* data_ = nullptr;
  int64_t bytes_ = 0, header_bytes_ = 0, width_ = 1, tokens_ = 0;
  TokenFormat format_ = TokenFormat::text;
};

}  // namespace sinter
