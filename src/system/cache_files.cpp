#include "system/cache_files.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

#include "system/files.h"
#include "system/streams.h"

namespace sinter {
namespace {

// Ahead of the bytes in each file.
struct Header {
  char magic[8];
  uint64_t key, length, checksum;
};
constexpr char magic[8] = {'s', 'i', 'n', 't', 'e', 'r', 'c', '1'};

void warn_once(std::atomic<bool>& said, const std::string& text) {
  if (!said.exchange(true)) say(fmt::format("sinter: {}\n", text));
}

}  // namespace

std::filesystem::path cache_folder() {
  auto env = [](const char* name) {
    const char* v = std::getenv(name);
    return std::filesystem::path(v ? v : "");
  };
  if (auto folder = env("SINTER_CACHE_DIR"); !folder.empty()) return folder;
  if (auto base = env("XDG_CACHE_HOME"); !base.empty()) return base / "sinter";
  if (auto home = env("HOME"); !home.empty()) return home / ".cache" / "sinter";
  return {};
}

uint64_t hash64(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string hash_name(std::string_view text) {
  // FNV-1a with a state of 128 bits: the prime is 2^88 + 0x13b.
  uint64_t high = 0x6c62272e07bb0142u, low = 0x62b821756295c58du;
  for (char c : text) {
    low ^= static_cast<unsigned char>(c);
    uint64_t l = (low & 0xffffffffu) * 0x13b, m = (low >> 32) * 0x13b + (l >> 32);
    high = high * 0x13b + (m >> 32) + (low << 24);
    low = m << 32 | (l & 0xffffffffu);
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

std::filesystem::path CacheFiles::path_of(std::string_view key) const {
  return folder_ / (hash_name(key) + "." + kind_);
}

std::optional<std::string> CacheFiles::read(std::string_view key) const {
  if (folder_.empty()) return {};
  std::filesystem::path path = path_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::ostringstream all;
  all << file.rdbuf();
  std::string text = std::move(all).str();
  Header h{};
  if (text.size() >= sizeof h) std::memcpy(&h, text.data(), sizeof h);
  std::string bytes = text.size() >= sizeof h ? text.substr(sizeof h) : "";
  if (std::memcmp(h.magic, magic, sizeof magic) == 0 && h.key == hash64(key) && h.length == bytes.size() &&
      h.checksum == hash64(bytes))
    return bytes;
  static std::atomic<bool> said;
  warn_once(said, fmt::format("the cache file {} is damaged; its {} is made again", path.string(), kind_));
  return {};
}

void CacheFiles::write(std::string_view key, std::string_view bytes) const {
  static std::atomic<bool> said;
  if (folder_.empty()) return;
  Header h{{}, hash64(key), bytes.size(), hash64(bytes)};
  std::memcpy(h.magic, magic, sizeof magic);
  std::string whole(reinterpret_cast<const char*>(&h), sizeof h);
  whole += bytes;
  try {
    std::filesystem::create_directories(folder_);
    write_file(path_of(key).string(), whole, Durable::no);
  } catch (const std::exception&) {
    warn_once(said, fmt::format("{} cannot be written: each {} is made again by every process (SINTER_CACHE_DIR names "
                                "another place)",
                                folder_.string(), kind_));
  }
}

}  // namespace sinter
