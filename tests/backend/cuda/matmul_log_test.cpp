// The log of GEMMs and their algorithms: its hash is of what ran, not of when.
#include <gtest/gtest.h>

#include "backend/cuda/matmul_cache.h"

namespace sinter::cuda {
namespace {

MatmulKey key(int64_t m) { return {{m, 8, 8, 8, 8, 8, 1, 0, 0, 0, 1024, 3}}; }
MatmulAlgorithm algorithm(uint64_t n) { return {{n, 2, 3, 4, 5, 6, 7, 8}}; }

TEST(MatmulLog, HashesWhatRanWhateverTheOrder) {
  MatmulLog one, other;
  one.used(key(1), algorithm(10)), one.used(key(2), algorithm(20));
  other.used(key(2), algorithm(20)), other.used(key(1), algorithm(10));
  EXPECT_EQ(one.summary().used, 2);
  EXPECT_EQ(one.summary().table_hash, other.summary().table_hash);
  MatmulLog swapped, fewer;
  swapped.used(key(1), algorithm(20)), swapped.used(key(2), algorithm(10));
  fewer.used(key(1), algorithm(10));
  EXPECT_NE(one.summary().table_hash, swapped.summary().table_hash);
  EXPECT_NE(one.summary().table_hash, fewer.summary().table_hash);
}

TEST(MatmulLog, AddsUpTuning) {
  MatmulLog log;
  EXPECT_EQ(log.summary().tuned, 0);
  log.tuned(0.5), log.tuned(0.25);
  EXPECT_EQ(log.summary().tuned, 2);
  EXPECT_EQ(log.summary().seconds, 0.75);
}

}  // namespace
}  // namespace sinter::cuda
