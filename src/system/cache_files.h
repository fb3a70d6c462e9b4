// What is kept on disk between runs: where, and files that are found to be whole before they are believed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace sinter {

// ${SINTER_CACHE_DIR:-${XDG_CACHE_HOME:-~/.cache}/sinter}; empty when there is no home.
std::filesystem::path cache_folder();

uint64_t hash64(std::string_view text);   // FNV-1a
std::string hash_name(std::string_view);  // 128 bits of it, as 32 hexadecimal digits

// Bytes by key, a file for each. Any number of threads and processes may read and fill one folder: a file appears
// whole, under its name, or not at all. A cache is never a reason to fail: what cannot be read or written is said once
// on stderr, and done without.
class CacheFiles {
 public:
  // `kind` ends the files' names, and says in warnings what they hold.
  CacheFiles(std::filesystem::path folder, std::string kind) : folder_(std::move(folder)), kind_(std::move(kind)) {}

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view bytes) const;
  std::filesystem::path path_of(std::string_view key) const;

 private:
  std::filesystem::path folder_;
  std::string kind_;
};

}  // namespace sinter
