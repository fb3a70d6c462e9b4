// Tensors from numbers and numbers from tensors, and how near two of them are.
#pragma once
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "ops/ops.h"

namespace sinter {

using Rng = std::mt19937_64;
using Values = std::vector<double>;

double uniform(Rng& rng, double low, double high);
int64_t integer(Rng& rng, int64_t low, int64_t high);  // in [low, high)
Values normals(Rng& rng, int64_t n);                   // kept away from 0, where relu has no derivative

// On the CPU; values are rounded to the type on the host.
Tensor tensor_of(const Values& values, const Dims& dims, DType dtype);
Tensor random_tensor(Rng& rng, const Dims& dims, DType dtype);

// How an input can lie in memory. Gaps hold NaN (floats), so that a kernel that reads them is found out.
enum class Layout { contiguous, padded_rows, sliced, every_other, transposed, leading_swapped };
const char* name_of(Layout layout);
std::vector<Layout> layouts_for(int rank);  // those that differ from contiguous
Tensor with_layout(const Tensor& x, Layout layout);

double roundoff(DType dtype);  // the largest relative error of rounding to it

// |actual − expected| <= relative·|expected| + of_largest·max|expected|, element by element; NaN is never near.
testing::AssertionResult near(const Tensor& actual, const Tensor& expected, double relative, double of_largest);
testing::AssertionResult near(const Values& actual, const Values& expected, double relative, double of_largest);
double normwise_error(const Values& actual, const Values& expected);  // ‖a − e‖ / ‖e‖
double norm(const Values& v);
testing::AssertionResult same_bits(const Tensor& a, const Tensor& b);

// The message of the Error that f throws; empty (and a failed test) if it throws none or another kind.
template <class F> std::string error_of(ErrorKind kind, const F& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.kind()), int(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}
testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts);

}  // namespace sinter
