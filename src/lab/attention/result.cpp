// From a measurement of attention to the fields of a record.
#include <map>

#include "lab/attention/bench_attention.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

Json saved_json(const AttentionConfig& c) {
  Json j = Json::object();
  for (const auto& [name, bytes] : plan::saved_tensors(c)) j[name] = bytes;
  return j;
}

Json common(const AttentionConfig& c, const AttentionNeed& need) {
  Json r = {{"engine", "sinter"}};
  r.update(to_json(c));
  r.update({{"status", "ok"}, {"reason", ""}, {"predicted_peak_bytes", need.peak_bytes}, {"phases", Json::object()}});
  if (c.pass == Pass::forward) return r;
  r["saved"] = saved_json(c);
  r["predicted_held_bytes"] = need.held_bytes;
  return r;
}

void add_limits(Json& phase, const plan::AttentionLimits& l) {
  if (l.ms() == 0) return;
  phase["product_limit_ms"] = l.product_ms;
  if (l.exp_ms > 0) phase["exp_limit_ms"] = l.exp_ms;
  phase["binds"] = l.binds();
  phase["of_light"] = l.ms() / phase["median_ms"].get<double>();
}

std::string parts_text(const Json& saved) {
  std::string text;
  for (const auto& [name, bytes] : saved.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes_text(bytes.get<double>()));
  return text;
}

}  // namespace

Json phase_json(const std::vector<double>& samples, double flops) {
  Statistics s = statistics_of(samples);
  return {{"samples_ms", samples},
          {"mean_ms", s.mean},
          {"std_ms", s.std},
          {"median_ms", s.median},
          {"tflops", flops / s.median / 1e9}};
}

Json attention_result(const AttentionConfig& c, const AttentionNeed& need, const AttentionMeasurement& m,
                      plan::Peaks& peaks) {
  Json r = common(c, need);
  bool both = c.pass != Pass::forward;
  double forward = plan::attention_flops(c, Pass::forward), all = plan::attention_flops(c, Pass::forward_backward),
         exps = plan::visible_pairs(c);
  std::vector<double> f = m.device.timed_phase_ms(0), b = both ? m.device.timed_phase_ms(1) : f, sum = f;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  Json& phases = r["phases"];
  phases["forward"] = phase_json(f, forward);
  if (both) phases["backward"] = phase_json(b, all - forward), phases["both"] = phase_json(sum, all);

  plan::UnitRates rates = plan::rates_of(c, peaks);
  auto doubts = [&] {
    std::string d = doubt("forward", forward, phases["forward"]["median_ms"], rates.product);
    return d.empty() && both ? doubt("backward", all - forward, phases["backward"]["median_ms"], rates.product) : d;
  };
  std::string reason = doubts();
  if (!reason.empty()) {  // the peak may have been measured at a bad moment
    peaks.confirm_product(c.precision.name);
    rates = plan::rates_of(c, peaks);
    reason = doubts();
  }
  if (!reason.empty()) r["status"] = "suspect", r["reason"] = reason;
  add_limits(phases["forward"], plan::limits_of(forward, exps, rates));
  if (both) {
    add_limits(phases["backward"], plan::limits_of(all - forward, exps, rates));
    // The phases run one after the other, so their limits add up.
    double light = phases["forward"].value("of_light", 0.0) * phases["forward"]["median_ms"].get<double>() +
                   phases["backward"].value("of_light", 0.0) * phases["backward"]["median_ms"].get<double>();
    if (light > 0) phases["both"]["of_light"] = light / phases["both"]["median_ms"].get<double>();
  }
  r["product_tflops"] = rates.product / 1e12;
  if (rates.exps > 0) r["exp_tera_per_s"] = rates.exps / 1e12;
  r["wall"] = phase_json(m.host.timed_wall_ms(), both ? all : forward);
  r["peak_bytes"] = m.peak_bytes;
  if (both) r["held_bytes"] = m.held_bytes;
  if (!m.compiled.is_null()) {
    r["compiled"] = m.compiled;
    r["algorithm"] = algorithm_text(c);
  }
  if (!m.device.clocks.empty()) r["clocks"] = m.device.clocks;
  return r;
}

Json attention_oom(const AttentionConfig& c, const AttentionNeed& need, const std::string& reason, int64_t free) {
  Json r = common(c, need);
  r["status"] = "oom";
  r["reason"] = reason;
  r["free_bytes"] = free;
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
