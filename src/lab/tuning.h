// What choosing algorithms for products cost a run, and which it ran with.
#pragma once
#include "backend/cuda/cuda.h"
#include "lab/fields.h"

namespace sinter::lab {

// The fields of a result that say so; none where no product ran on CUDA.
struct TuningResult {
  struct Cost {
    int64_t products = 0;  // whose algorithms were timed
    double seconds = 0;
    int64_t used = 0;  // different ones that ran
    template <class Self, class F> static void fields(Self& self, F&& f) {
      f("products", self.products);
      f("seconds", self.seconds);
      f("used", self.used);
    }
  };
  std::optional<Cost> tuning;
  std::optional<std::string> matmul_table;  // a hash of the products and their algorithms

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("tuning", self.tuning);
    f("matmul_table", self.matmul_table);
  }
};
TuningResult tuning_of(const ProductTuning& tuning);
std::string tuning_text(const Json& result);  // "tuned 31 products in 2.1 s", or nothing

}  // namespace sinter::lab
