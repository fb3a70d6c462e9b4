// The GEMM algorithms chosen so far, kept in a text file per GPU model and cuBLASLt version.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/cuda.h"

namespace sinter::cuda {

// All that an algorithm's choice may depend on, in the order that matmul.cpp writes it.
struct MatmulKey {
  static constexpr int words = 12;
  int64_t w[words];

  bool operator==(const MatmulKey&) const = default;
};
struct MatmulKeyHash {
  size_t operator()(const MatmulKey& k) const {
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (int64_t w : k.w) {
      h = (h ^ uint64_t(w)) * 0xD6E8FEB86659FD93u;
      h ^= h >> 32;
    }
    return h;
  }
};

struct MatmulAlgorithm {
  uint64_t data[8];  // cublasLtMatmulAlgo_t, opaque; may be stored and reloaded by the same library version
};

// Not thread-safe: matmul.cpp holds its lock. Nothing here throws for reasons of the disk: a cache may fail silently.
class MatmulCache {
 public:
  explicit MatmulCache(std::string path);  // reads the file; lines it does not understand are ignored
  ~MatmulCache() { save(); }

  const MatmulAlgorithm* find(const MatmulKey& key) const;
  void put(const MatmulKey& key, const MatmulAlgorithm& algorithm);  // saves, at most every few seconds
  void save() noexcept;  // if something changed: merged with what other processes wrote, temporary file + rename

 private:
  using Map = std::unordered_map<MatmulKey, MatmulAlgorithm, MatmulKeyHash>;
  void read(Map& into) const;

  std::string path_;
  Map entries_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
};

// Which GEMMs ran with which algorithms, and what choosing them took.
class MatmulLog {
 public:
  void used(const MatmulKey& key, const MatmulAlgorithm& algorithm) { used_.emplace_back(key, algorithm); }
  void tuned(double seconds) { ++tuned_, seconds_ += seconds; }
  ProductTuning summary() const;

 private:
  std::vector<std::pair<MatmulKey, MatmulAlgorithm>> used_;
  int64_t tuned_ = 0;
  double seconds_ = 0;
};

// ${SINTER_CACHE_DIR:-${XDG_CACHE_HOME:-~/.cache}/sinter}/matmul-<gpu>-<version>.txt; empty when there is no home.
std::string matmul_cache_file(const std::string& gpu, size_t cublaslt_version);

}  // namespace sinter::cuda
