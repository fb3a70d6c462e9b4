#include "plan/network.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>

#include "core/check.h"
#include "system/json_fields.h"

namespace sinter::embedded {
extern const std::string_view networks;  // src/plan/networks.json
}

namespace sinter::plan {
namespace {

// Straight lines between measured points, both axes logarithmic; beyond the ends as the last two go on.
double on_curve(const std::vector<Network::Point>& curve, double bytes) {
  size_t i = 1;
  while (i + 1 < curve.size() && curve[i].bytes < bytes) ++i;
  const Network::Point &a = curve[i - 1], &b = curve[i];
  double slope = std::log(b.seconds / a.seconds) / std::log(b.bytes / a.bytes);
  return a.seconds * std::pow(bytes / a.bytes, std::clamp(slope, 0.0, 1.0));
}

Network read(JsonFields j, const std::string& name) {
  Network n;
  n.name = j.text("name", name);
  j.text("source", "");
  n.devices_per_node = j.whole("devices_per_node", 1, 1 << 20);
  n.device_bandwidth = j.number("device_bandwidth", 1, 1e18);
  n.device_reach = j.number("device_reach", 0.01, 1, 1);
  n.node_bandwidth = j.number("node_bandwidth", 1, 1e18, n.device_bandwidth);
  n.node_reach = j.number("node_reach", 0.01, 1, 1);
  n.device_latency = j.number("device_latency_s", 0, 1, 0);
  n.node_latency = j.number("node_latency_s", 0, 1, 0);
  n.call_s = j.number("call_s", 0, 1, 0);
  n.shares_device = j.flag("shares_device", false);
  if (j.has("curves"))
    for (JsonFields c : j.objects("curves")) {
      std::string name = c.text("collective");
      CollectiveKind kind = CollectiveKind::barrier;
      for (CollectiveKind k : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                               CollectiveKind::broadcast})
        if (name == name_of(k)) kind = k;
      if (kind == CollectiveKind::barrier)
        c.refuse("collective", name + " is unknown; choose all_reduce, reduce_scatter, all_gather or broadcast");
      int64_t ranks = c.whole("ranks", 2, 1 << 20);
      std::vector<double> bytes = c.numbers("bytes", 1, 1e15), seconds = c.numbers("seconds", 1e-9, 1e6);
      if (bytes.size() != seconds.size() || bytes.size() < 2)
        c.refuse("seconds", fmt::format("{} of them for {} sizes; there must be one for each, and two or more",
                                        seconds.size(), bytes.size()));
      auto& curve = n.curves[kind][ranks];
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (i > 0 && bytes[i] <= bytes[i - 1]) c.refuse("bytes", "must grow from each to the next");
        curve.push_back({bytes[i], seconds[i]});
      }
      c.finish();
    }
  j.finish();
  return n;
}

}  // namespace

double Network::hop_seconds(double bytes, bool between_nodes) const {
  double rate =
      between_nodes ? node_bandwidth / double(devices_per_node) * node_reach : device_bandwidth * device_reach;
  return call_s + (between_nodes ? node_latency : device_latency) + bytes / rate;
}

double Network::seconds(CollectiveKind kind, double bytes, const Ranks& r) const {
  if (r.count <= 1) return 0;
  if (auto of = curves.find(kind); of != curves.end())
    if (auto measured = of->second.find(r.count); measured != of->second.end())
      return on_curve(measured->second, std::max(bytes, 1.0));
  double n = double(r.count), nodes = std::ceil(n / double(r.per_node));
  double inside = device_bandwidth * device_reach;
  double rate = inside;
  // The node's links are shared by groups of other ranks that communicate at the same time: each rank has its part.
  if (nodes > 1) rate = std::min(inside, double(r.per_node) * node_bandwidth / double(devices_per_node) * node_reach);
  bool all_reduces = kind == CollectiveKind::all_reduce;
  double passes = all_reduces ? 2 : 1;
  double moved = passes * (n - 1) / n * bytes / rate;
  double ring = moved + passes * ((n - nodes) * device_latency + (nodes > 1 ? nodes : 0) * node_latency);
  if (!all_reduces && kind != CollectiveKind::broadcast) return call_s + ring;
  double levels = std::ceil(std::log2(std::max(2.0, nodes)));
  double tree = moved + passes * ((std::min(n, double(r.per_node)) - 1) * device_latency +
                                  (nodes > 1 ? levels * node_latency : 0));
  return call_s + std::min(ring, tree);
}

Network network_named(const std::string& name) {
  JsonFields shipped = JsonFields::of_text("sinter's own networks", std::string(embedded::networks));
  for (auto& [known, fields] : shipped.named("networks"))
    if (known == name) return read(fields, known);
  check(std::filesystem::exists(name), "--network {}: neither a file nor one of {}", name,
        fmt::join(known_networks(), ", "));
  std::string stem = std::filesystem::path(name).stem();
  return read(JsonFields(name), stem);
}

std::vector<std::string> known_networks() {
  JsonFields shipped = JsonFields::of_text("sinter's own networks", std::string(embedded::networks));
  std::vector<std::string> names;
  for (auto& [known, fields] : shipped.named("networks")) names.push_back(known);
  return names;
}

}  // namespace sinter::plan
