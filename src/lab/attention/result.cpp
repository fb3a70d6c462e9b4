#include "lab/attention/result.h"

#include <map>

#include "system/units.h"

namespace sinter::lab {
namespace {

Json saved_json(const AttentionConfig& c) {
  Json j = Json::object();
  for (const auto& [name, bytes] : plan::saved_tensors(c)) j[name] = bytes;
  return j;
}

AttentionResult common(const AttentionConfig& c, const AttentionNeed& need) {
  AttentionResult r;
  r.config = to_json(c);
  r.predicted_peak_bytes = need.peak_bytes;
  if (c.pass == Pass::forward) return r;
  r.saved = saved_json(c);
  r.predicted_held_bytes = need.held_bytes;
  return r;
}

AttentionTimes limited(const std::vector<double>& samples, double flops, const plan::AttentionLimits& l) {
  AttentionTimes t{times_of(samples, flops), {}, {}, {}, {}};
  if (l.ms() == 0) return t;
  t.product_limit_ms = l.product_ms;
  if (l.exp_ms > 0) t.exp_limit_ms = l.exp_ms;
  t.binds = l.binds();
  t.of_light = l.ms() / t.median_ms;
  return t;
}

std::string parts_text(const Json& saved) {
  std::string text;
  for (const auto& [name, bytes] : saved.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes_text(bytes.get<double>()));
  return text;
}

}  // namespace

void AttentionMeasurement::append(const AttentionMeasurement& later) {
  device.append(later.device);
  host.append(later.host);
  peak_bytes = std::max(peak_bytes, later.peak_bytes);
}

std::string doubt_of(const AttentionConfig& c, const AttentionMeasurement& m, double rate) {
  double forward = plan::attention_flops(c, Pass::forward), all = plan::attention_flops(c, Pass::forward_backward);
  auto median = [&](size_t phase) { return statistics_of(m.device.timed_phase_ms(phase)).median; };
  std::string d = doubt("forward", forward, median(0), rate);
  return d.empty() && c.pass != Pass::forward ? doubt("backward", all - forward, median(1), rate) : d;
}

AttentionResult attention_result(const AttentionConfig& c, const AttentionNeed& need, const AttentionMeasurement& m,
                                 plan::Peaks& peaks) {
  AttentionResult r = common(c, need);
  bool both = c.pass != Pass::forward;
  double forward = plan::attention_flops(c, Pass::forward), all = plan::attention_flops(c, Pass::forward_backward),
         exps = plan::visible_pairs(c);
  plan::UnitRates rates = plan::rates_of(c, peaks);
  r.reason = doubt_of(c, m, rates.product);
  if (!r.reason.empty()) r.status = "suspect";
  std::vector<double> sum = m.device.timed_phase_ms(0);
  r.phases.forward = limited(sum, forward, plan::limits_of(forward, exps, rates));
  if (both) {
    std::vector<double> b = m.device.timed_phase_ms(1);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
    r.phases.backward = limited(b, all - forward, plan::limits_of(all - forward, exps, rates));
    r.phases.both = AttentionTimes{times_of(sum, all), {}, {}, {}, {}};
    // The phases run one after the other, so their limits add up.
    const AttentionTimes &f = *r.phases.forward, &g = *r.phases.backward;
    double light = f.of_light.value_or(0) * f.median_ms + g.of_light.value_or(0) * g.median_ms;
    if (light > 0) r.phases.both->of_light = light / r.phases.both->median_ms;
  }
  r.product_tflops = rates.product / 1e12;
  if (rates.exps > 0) r.exp_tera_per_s = rates.exps / 1e12;
  r.wall = times_of(m.host.timed_wall_ms(), both ? all : forward);
  r.peak_bytes = m.peak_bytes;
  if (both) r.held_bytes = m.held_bytes;
  r.compiled = m.compiled;
  if (r.compiled) r.algorithm = algorithm_text(c);
  if (!m.device.clocks.empty()) r.clocks = m.device.clocks;
  return r;
}

AttentionResult attention_oom(const AttentionConfig& c, const AttentionNeed& need, const std::string& reason,
                              int64_t free) {
  AttentionResult r = common(c, need);
  r.status = "oom";
  r.reason = reason;
  r.free_bytes = free;
  return r;
}

std::string why_it_does_not_fit(const AttentionConfig& c, const AttentionNeed& need, int64_t free) {
  std::string text =
      fmt::format("needs {}, {} are free", bytes_text(double(need.peak_bytes)), bytes_text(double(free)));
  if (c.pass != Pass::forward)
    text += fmt::format("; held for backward {}: {}", bytes_text(double(need.held_bytes)), parts_text(saved_json(c)));
  AttentionConfig smaller = c;
  while (smaller.ctx > 1 && predict(smaller).peak_bytes > free) smaller.ctx /= 2;
  text += fmt::format("; --ctx {} would fit", smaller.ctx);
  if (c.attention.kind != AttentionKind::naive) return text;
  AttentionConfig other = c;
  other.attention.kind = choose_attention(AttentionKind::automatic, target_of(c.device), c.head_dim).kind;
  int64_t its = predict(other).peak_bytes;
  if (other.attention.kind != AttentionKind::naive && its <= free)
    text +=
        fmt::format(", and --attention {} as it is, with {}", name_of(other.attention.kind), bytes_text(double(its)));
  return text;
}

Json growth_of(const Json& results) {
  struct Group {
    Json what;
    std::vector<std::pair<double, double>> points;
  };
  std::map<std::string, Group> groups;
  std::vector<std::string> order;
  for (const Json& r : results) {
    if (!r.contains("predicted_held_bytes")) continue;
    Json what = Json::object();
    for (const char* f : {"attention", "dtype", "mode", "batch", "heads", "kv_heads", "head_dim"}) what[f] = r[f];
    std::string key = what.dump();
    if (!groups.count(key)) order.push_back(key);
    Group& g = groups[key];
    g.what = what;
    auto same = [&](const auto& point) { return point.first == r["ctx"].get<double>(); };
    if (std::any_of(g.points.begin(), g.points.end(), same)) continue;  // tiles and determinism hold the same
    // A row that does not fit has been counted all the same.
    g.points.emplace_back(r["ctx"].get<double>(), r.value("held_bytes", r["predicted_held_bytes"].get<double>()));
  }
  Json rows = Json::array();
  for (const std::string& key : order) {
    Group& g = groups[key];
    std::optional<double> exponent = plan::fitted_exponent(g.points);
    if (!exponent) continue;
    g.what["exponent"] = *exponent;
    g.what["points"] = g.points.size();
    rows.push_back(g.what);
  }
  return rows;
}

}  // namespace sinter::lab
