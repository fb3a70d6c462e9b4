// Every way in which the Hopper kernels describe matrices to the tensor cores, against a plain product. The values are
// small integers, so the sums are exact and a wrong element cannot hide.
#include "backend/cuda/wgmma_products.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter::cuda::hopper {
namespace {

std::vector<float> integers(Rng& rng, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(float(integer(rng, -8, 8)));
  return x;
}

TEST(WgmmaGpu, EveryFormIsAPlainProduct) {
  SINTER_REQUIRE_GPU();
  if (!has_wgmma()) GTEST_SKIP() << "SKIPPED: wgmma needs compute capability 9.0";
  Rng rng(7);
  for (const Product& p : products()) {
    bool rows = p.form == Form::rows_rows;
    int k = rows ? p.d : 128;
    std::vector<float> a = integers(rng, 64 * k), b = integers(rng, rows ? p.n * p.d : 128 * p.d), out = run(p, a, b);
    int wrong = 0;
    size_t n = size_t(p.n), d = size_t(p.d), depth = size_t(k), panel = size_t(p.panel);
    for (size_t i = 0; i < 64; ++i)
      for (size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (size_t l = 0; l < depth; ++l) {
          float x = p.form == Form::across_across ? a[l * 64 + i] : a[i * depth + l];
          size_t column = j + 64 * panel;
          float y = rows ? b[j * d + l] : column < d ? b[l * d + column] : 0;
          sum += x * y;
        }
        wrong += out[i * n + j] != sum;
      }
    EXPECT_EQ(wrong, 0) << "form " << int(p.form) << ", " << name_of(p.type) << ", d " << p.d << ", n " << p.n
                        << ", panel " << p.panel;
  }
}

}  // namespace
}  // namespace sinter::cuda::hopper
