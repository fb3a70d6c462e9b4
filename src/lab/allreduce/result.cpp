#include "lab/allreduce/result.h"

#include <algorithm>
#include <cmath>

#include "system/units.h"

namespace sinter::lab {
namespace {

struct Line {
  double alpha, beta;
  double at(double bytes) const { return alpha + beta * bytes; }
};

// Least squares of relative errors, or the largest sizes would be all that counts. No message takes less than no time,
// and no byte either: where noise says so, that part is left out.
Line fitted(const std::vector<std::pair<double, double>>& points) {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (auto [bytes, ms] : points) {
    double weight = 1 / (ms * ms);
    w += weight, x += weight * bytes, y += weight * ms, xx += weight * bytes * bytes, xy += weight * bytes * ms;
  }
  Line line{0, (w * xy - x * y) / (w * xx - x * x)};
  if (line.beta < 0) return {y / w, 0};
  line.alpha = (y - line.beta * x) / w;
  return line.alpha >= 0 ? line : Line{0, xy / xx};
}

}  // namespace

std::string AllReduceConfig::text() const {
  return fmt::format("{} rank{}, {:g} MB of {}, {}", ranks, ranks == 1 ? "" : "s", double(bytes) / 1e6, name_of(dtype),
                     backend);
}

AllReduceResult all_reduce_result(const AllReduceConfig& config, const std::vector<RankTimes>& by_rank,
                                  const std::string& wrong) {
  AllReduceResult r;
  r.config = config;
  r.verified = wrong.empty();
  if (!wrong.empty()) r.status = "wrong", r.reason = wrong;
  r.samples_ms = by_rank[0].samples_ms;
  std::vector<double> medians;
  for (const RankTimes& t : by_rank) {
    for (size_t i = 0; i < t.samples_ms.size(); ++i) r.samples_ms[i] = std::max(r.samples_ms[i], t.samples_ms[i]);
    medians.push_back(statistics_of(t.samples_ms).median);
  }
  auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  r.median_ms = statistics_of(r.samples_ms).median;
  r.spread_ms = *most - *least;
  double n = double(config.ranks);
  r.algbw_gbs = double(config.bytes) / *r.median_ms / 1e6;
  r.busbw_gbs = *r.algbw_gbs * 2 * (n - 1) / n;
  r.by_rank = by_rank;
  return r;
}

Json fits_of(const Json& results) {
  Json fits = Json::array();
  for (const Json& r : results) {
    if (r["status"] != "ok") continue;
    Json what = {{"backend", r["backend"]}, {"ranks", r["ranks"]}, {"dtype", r["dtype"]}};
    auto same = [&](const Json& f) {
      return std::all_of(what.items().begin(), what.items().end(),
                         [&](const auto& w) { return f[w.key()] == w.value(); });
    };
    auto fit = std::find_if(fits.begin(), fits.end(), same);
    if (fit == fits.end()) {
      what["curve"] = Json::array();
      fits.push_back(what);
      fit = std::prev(fits.end());
    }
    (*fit)["curve"].push_back({{"bytes", r["bytes"]}, {"ms", r["median_ms"]}});
  }
  for (Json& fit : fits) {
    std::vector<std::pair<double, double>> points;
    bool several = false;
    for (const Json& p : fit["curve"]) {
      points.emplace_back(p["bytes"].get<double>(), p["ms"].get<double>());
      several = several || points.back().first != points[0].first;
    }
    if (!several) continue;
    Line line = fitted(points);
    double error = 0;
    for (auto [bytes, ms] : points) error = std::max(error, std::abs(line.at(bytes) / ms - 1));
    fit["alpha_ms"] = line.alpha;
    fit["beta_ms_per_byte"] = line.beta;
    fit["largest_error"] = error;
  }
  return fits;
}

}  // namespace sinter::lab
