#include "support/values.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"

namespace sinter {

double uniform(Rng& rng, double low, double high) { return std::uniform_real_distribution<double>(low, high)(rng); }
int64_t integer(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high - 1)(rng);
}

Values normals(Rng& rng, int64_t n) {
  std::normal_distribution<double> normal;
  Values v(size_t(n), 0.0);
  for (double& x : v) {
    x = normal(rng);
    x += std::copysign(0.03, x);
  }
  return v;
}

Tensor tensor_of(const Values& values, const Dims& dims, DType dtype) {
  check(int64_t(values.size()) == dims.numel(), "tensor_of: {} values for {}", values.size(), dims);
  std::vector<char> bytes(values.size() * size_t(size_of(dtype)));
  auto put = [&](size_t i, auto value) { std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value)); };
  for (size_t i = 0; i < values.size(); ++i) {
    double x = values[i];
    switch (dtype) {
      case DType::f64: put(i, x); break;
      case DType::f32: put(i, float(x)); break;
      case DType::bf16: put(i, to_bf16(float(x))); break;
      case DType::f16: put(i, to_f16(float(x))); break;
      case DType::i64: put(i, int64_t(x)); break;
      case DType::i32: put(i, int32_t(x)); break;
      case DType::u8:
      case DType::boolean: put(i, uint8_t(x)); break;
    }
  }
  return from_host(bytes.data(), dims, dtype, DeviceType::cpu);
}

Tensor random_tensor(Rng& rng, const Dims& dims, DType dtype) {
  return tensor_of(normals(rng, dims.numel()), dims, dtype);
}

const char* name_of(Layout layout) {
  static const char* const names[] = {"contiguous",  "padded_rows", "sliced",
                                      "every_other", "transposed",  "leading_swapped"};
  return names[int(layout)];
}

std::vector<Layout> layouts_for(int rank) {
  if (rank == 0) return {};
  std::vector<Layout> all{Layout::sliced, Layout::every_other};
  if (rank >= 2) all.insert(all.end(), {Layout::padded_rows, Layout::transposed});
  if (rank >= 3) all.push_back(Layout::leading_swapped);
  return all;
}

Tensor with_layout(const Tensor& x, Layout layout) {
  Dims dims = x.dims(), memory = dims;   // `memory`: sizes of the block the view is cut from, in the view's order
  int r = dims.rank(), order[max_rank];  // order[i]: which dimension of the view is the i-th slowest in memory
  for (int d = 0; d < r; ++d) order[d] = d;
  int64_t step = 1, first = 0;
  switch (layout) {
    case Layout::contiguous: break;
    case Layout::padded_rows: memory[r - 1] += 3; break;
    case Layout::sliced:
      for (int d = 0; d < r; ++d) memory[d] += 3;
      first = 1;
      break;
    case Layout::every_other:
      memory[r - 1] *= 2;
      step = 2;
      break;
    case Layout::transposed: std::swap(order[r - 1], order[r - 2]); break;
    case Layout::leading_swapped: std::swap(order[0], order[1]); break;
  }
  Dims strides = dims;
  int64_t size = 1, offset = 0;
  for (int i = r - 1; i >= 0; --i) {
    strides[order[i]] = size;
    size *= memory[order[i]];
  }
  for (int d = 0; d < r; ++d) offset += first * strides[d];
  if (r) strides[r - 1] *= step;

  Values from = to_vector(x), block(size_t(size), is_float(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 0.0);
  for (int64_t i = 0; i < dims.numel(); ++i) {
    int64_t at = offset, rest = i;
    for (int d = r - 1; d >= 0; --d) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    block[size_t(at)] = from[size_t(i)];
  }
  return make_view(to(tensor_of(block, {size}, x.dtype()), x.device()), dims, strides, offset);
}

double roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : dtype == DType::f32 ? 0x1p-24 : 0x1p-53;
}

testing::AssertionResult near(const Values& a, const Values& e, double relative, double of_largest) {
  if (a.size() != e.size()) return testing::AssertionFailure() << a.size() << " elements, not " << e.size();
  double largest = 0;
  for (double x : e)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i]) continue;  // equal infinities too
    double error = std::fabs(a[i] - e[i]), bound = relative * std::fabs(e[i]) + of_largest * largest;
    if (error <= bound) continue;
    return testing::AssertionFailure() << "element " << i << " is " << a[i] << ", not " << e[i] << " (error " << error
                                       << ", allowed " << bound << ")";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult near(const Tensor& a, const Tensor& e, double relative, double of_largest) {
  if (!a.defined() || !e.defined()) return testing::AssertionFailure() << "a tensor is missing";
  if (!(a.dims() == e.dims()))
    return testing::AssertionFailure() << "shape " << a.dims().str() << ", not " << e.dims().str();
  return near(to_vector(a), to_vector(e), relative, of_largest);
}

double norm(const Values& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

double normwise_error(const Values& a, const Values& e) {
  if (a.size() != e.size()) return std::numeric_limits<double>::infinity();
  Values difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - e[i]);
  return norm(e) == 0 ? norm(difference) : norm(difference) / norm(e);
}

testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.dims() == b.dims()) || a.dtype() != b.dtype())
    return testing::AssertionFailure() << name_of(a.dtype()) << a.dims().str() << " and " << name_of(b.dtype())
                                       << b.dims().str();
  Tensor x = to(contiguous(a), DeviceType::cpu), y = to(contiguous(b), DeviceType::cpu);
  int64_t width = size_of(x.dtype());
  if (std::memcmp(x.data_as<char>(), y.data_as<char>(), size_t(x.numel() * width)) == 0)
    return testing::AssertionSuccess();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (std::memcmp(x.data_as<char>() + i * width, y.data_as<char>() + i * width, size_t(width)) != 0)
      return testing::AssertionFailure() << "element " << i << " is " << to_vector(x)[size_t(i)] << " and "
                                         << to_vector(y)[size_t(i)];
  return testing::AssertionSuccess();
}

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& p : parts)
    if (text.find(p) == std::string::npos)
      return testing::AssertionFailure() << "\"" << text << "\" lacks \"" << p << "\"";
  return testing::AssertionSuccess();
}

}  // namespace sinter
