#include "plan/attention_limits.h"

#include <cmath>

#include "system/nvml.h"

namespace sinter::plan {

double visible_pairs(const AttentionProblem& c) {
  double all = double(c.batch) * double(c.heads) * double(c.ctx) * double(c.ctx);
  return c.causal ? all / 2 : all;
}

double attention_flops(const AttentionProblem& c, Pass pass) {
  double forward = 4 * visible_pairs(c) * double(c.head_dim);
  return pass == Pass::forward ? forward : 3.5 * forward;
}

double exp_rate(int multiprocessors, double mhz) { return 16.0 * multiprocessors * mhz * 1e6; }

namespace {

// The CPU widens 16-bit operands, so that its ceiling is that of fp32.
bool is_widened(const AttentionProblem& c) { return c.device != DeviceType::cuda && c.precision.compute; }

// fp32 out of the tensor cores takes three tf32 products, which is still faster than the plain units.
bool is_three_products(const AttentionProblem& c) {
  return c.device == DeviceType::cuda && c.precision.name == "fp32" && c.attention.kind != AttentionKind::naive &&
         backend_of(c.device).info().compute_capability >= 80;
}

}  // namespace

void confirm_rates(const AttentionProblem& c, plan::Peaks& peaks) {
  peaks.confirm_product(c.precision.name);
  if (is_widened(c)) peaks.confirm_product("fp32");
  if (is_three_products(c)) peaks.confirm_product("tf32");
}

UnitRates rates_of(const AttentionProblem& c, plan::Peaks& peaks) {
  UnitRates r{peaks.product(c.precision.name), 0};
  if (is_widened(c)) r.product = std::max(r.product, peaks.product("fp32"));
  if (is_three_products(c)) r.product = std::max(r.product, peaks.product("tf32") / 3);
  if (c.device != DeviceType::cuda) return r;
  DeviceInfo info = backend_of(c.device).info();
  r.exps = exp_rate(info.multiprocessors, gpu_clocks(info.uuid).value("sm_max_mhz", 0.0));
  return r;
}

AttentionLimits limits_of(double flops, double exps, const UnitRates& rates) {
  return {rates.product > 0 ? flops / rates.product * 1e3 : 0, rates.exps > 0 ? exps / rates.exps * 1e3 : 0};
}

std::vector<std::pair<std::string, int64_t>> saved_tensors(const AttentionProblem& c) {
  int64_t size = size_of(c.type()), rows = c.batch * c.heads * c.ctx;
  int64_t queries = rows * c.head_dim * size, keys = c.batch * c.kv_heads * c.ctx * c.head_dim * size;
  bool naive = c.attention.kind == AttentionKind::naive;
  return {{"q", queries},
          {"k", keys},
          {"v", keys},
          {"o", queries},
          {naive ? "probabilities" : "L", naive ? rows * c.ctx * size : rows * (c.type() == DType::f64 ? 8 : 4)}};
}

std::optional<double> fitted_exponent(const std::vector<std::pair<double, double>>& points) {
  double n = double(points.size()), sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (auto [x, y] : points) {
    double lx = std::log(x), ly = std::log(y);
    sx += lx, sy += ly, sxx += lx * lx, sxy += lx * ly;
  }
  double spread = n * sxx - sx * sx;
  if (points.size() < 2 || spread < 1e-9) return {};
  return (n * sxy - sx * sy) / spread;
}

}  // namespace sinter::plan
