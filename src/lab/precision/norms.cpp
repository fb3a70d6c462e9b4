// RMSNorm and LayerNorm on inputs of very different size, with statistics in the input's 16-bit type and in fp32.
#include <cmath>

#include "lab/precision/precision.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

constexpr int64_t rows = 64, width = 1024;

struct Input {
  const char* name;
  double scale, eps;
};
// Tiny inputs also with a tiny eps: at 1e-5 it hides that their squares vanish.
constexpr Input inputs[] = {
    {"N(0, 1)", 1, 1e-5},           {"300 · N(0, 1)", 300, 1e-5},    {"10000 · N(0, 1)", 1e4, 1e-5},
    {"1e-4 · N(0, 1)", 1e-4, 1e-5}, {"1e-4 · N(0, 1)", 1e-4, 1e-12}, {"1e-6 · N(0, 1)", 1e-6, 1e-14}};

// In double precision, from the very values the kernel reads.
std::vector<double> reference(const std::vector<double>& x, bool layer, double eps) {
  std::vector<double> y(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = &x[size_t(r * width)];
    double mean = 0, square = 0;
    if (layer)
      for (int64_t i = 0; i < width; ++i) mean += row[i] / double(width);
    for (int64_t i = 0; i < width; ++i) square += (row[i] - mean) * (row[i] - mean) / double(width);
    for (int64_t i = 0; i < width; ++i) y[size_t(r * width + i)] = (row[i] - mean) / std::sqrt(square + eps);
  }
  return y;
}

Json compare(const std::vector<double>& y, const std::vector<double>& ref, const Input& in, DType type) {
  double error = 0, norm = 0, non_finite = 0, lost = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    norm += ref[i] * ref[i];
    if (!std::isfinite(y[i])) ++non_finite;
    else error += (y[i] - ref[i]) * (y[i] - ref[i]);
    lost += y[i] == 0 && std::abs(ref[i]) > 1e-3;
  }
  double n = double(y.size()), relative = non_finite > 0 ? INFINITY : std::sqrt(error / norm);
  // Beyond fp16's range squares become infinite or nothing; within range a long sum stops growing.
  const char* verdict = relative < 0.05                        ? "fine"
                        : type == DType::bf16 || in.scale == 1 ? "wrong: the sum stalls"
                        : in.scale < 1                         ? "underflow: squares vanish"
                        : non_finite > 0                       ? "overflow: not finite"
                                                               : "overflow: all zero";
  return {{"relative_error", std::isfinite(relative) ? Json(relative) : Json()},
          {"non_finite", non_finite / n},
          {"vanished", lost / n},
          {"verdict", verdict}};
}

}  // namespace

Json norm_rows(DeviceType device, DType type, uint64_t seed) {
  NoGrad off;
  Json out = Json::array();
  Tensor base = empty({rows, width}, DType::f32, device);
  fill_normal(base, seed, 3, 1);
  Tensor gain = full({width}, 1, DType::f32, device), shift = zeros({width}, DType::f32, device);
  for (bool layer : {false, true})
    for (const Input& in : inputs) {
      Tensor x = cast(base * in.scale, type);
      std::vector<double> ref = reference(to_vector(x), layer, in.eps);
      for (bool low : {true, false}) {
        NormAttrs attrs;
        attrs.eps = in.eps;
        attrs.low_precision_statistics = low;
        Tensor y = layer ? dispatch(ops::layer_norm, Attrs::of(attrs), x, gain, shift)[0]
                         : dispatch(ops::rms_norm, Attrs::of(attrs), x, gain)[0];
        Json row = {{"experiment", "norm"},   {"norm", layer ? "LayerNorm" : "RMSNorm"},
                    {"dtype", name_of(type)}, {"input", in.name},
                    {"eps", in.eps},          {"statistics", low ? name_of(type) : "fp32"}};
        row.update(compare(to_vector(y), ref, in, type));
        out.push_back(row);
      }
    }
  return out;
}

}  // namespace sinter::lab
