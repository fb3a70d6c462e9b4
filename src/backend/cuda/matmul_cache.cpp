#include "backend/cuda/matmul_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "system/cache_files.h"

namespace sinter::cuda {

namespace {

constexpr const char* header = "# sinter matmul algorithms, version 1: problem : algorithm";

std::string line_of(const MatmulKey& key, const MatmulAlgorithm& algorithm) {
  std::ostringstream s;
  for (int64_t w : key.w) s << w << ' ';
  s << ':' << std::hex;
  for (uint64_t d : algorithm.data) s << ' ' << d;
  return s.str();
}

bool parse(const std::string& line, MatmulKey& key, MatmulAlgorithm& algorithm) {
  std::istringstream s(line);
  for (int64_t& w : key.w)
    if (!(s >> w)) return false;
  char colon = 0;
  if (!(s >> colon) || colon != ':') return false;
  s >> std::hex;
  for (uint64_t& d : algorithm.data)
    if (!(s >> d)) return false;
  std::string rest;
  return !(s >> rest);
}

}  // namespace

std::string matmul_cache_file(const std::string& gpu, size_t cublaslt_version) {
  std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  std::string name = gpu;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  return (folder / ("matmul-" + name + "-" + std::to_string(cublaslt_version) + ".txt")).string();
}

MatmulCache::MatmulCache(std::string path) : path_(std::move(path)) { read(entries_); }

void MatmulCache::read(Map& into) const {
  if (path_.empty()) return;
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != header) return;
  while (std::getline(file, line)) {
    MatmulKey key;
    MatmulAlgorithm algorithm;
    if (parse(line, key, algorithm)) into.emplace(key, algorithm);
  }
}

const MatmulAlgorithm* MatmulCache::find(const MatmulKey& key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

void MatmulCache::put(const MatmulKey& key, const MatmulAlgorithm& algorithm) {
  entries_[key] = algorithm;
  dirty_ = true;
  if (std::chrono::steady_clock::now() - last_save_ > std::chrono::seconds(3)) save();
}

void MatmulCache::save() noexcept try {
  if (!dirty_ || path_.empty()) return;
  dirty_ = false;
  last_save_ = std::chrono::steady_clock::now();
  Map all = entries_;
  read(all);  // adds what others found; ours win
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  std::string temporary = path_ + "." + std::to_string(getpid());
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << header << '\n';
    for (const auto& [key, algorithm] : all) file << line_of(key, algorithm) << '\n';
    file.flush();
    if (!file) {
      file.close();
      std::remove(temporary.c_str());
      return;
    }
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) std::remove(temporary.c_str());
} catch (...) {
}

ProductTuning MatmulLog::summary() const {
  std::vector<std::string> lines;
  for (const auto& [key, algorithm] : used_) lines.push_back(line_of(key, algorithm));
  std::sort(lines.begin(), lines.end());
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const std::string& line : lines)
    for (char c : line + '\n') hash = (hash ^ uint64_t(static_cast<unsigned char>(c))) * 0x100000001b3;
  return {tuned_, seconds_, int64_t(lines.size()), hash};
}

}  // namespace sinter::cuda
