#include "lab/network_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "lab/record.h"

namespace sinter::lab {

namespace {

plan::Network network_of(const Json& record, const std::string& name, std::string backend) {
  check(record.at("command") == "bench allreduce",
        "--network {}: a record of {}; give one of bench allreduce, or a "
        "network's file",
        name, record.at("command").get<std::string>());
  plan::Network n;
  const std::string asked = backend;
  for (const Json& r : record.at("results")) {
    if (r.value("status", "") != "ok" || r.value("dtype", "") != "fp32") continue;
    if (backend.empty()) backend = r.at("backend");
    if (r.at("backend") != backend) continue;
    int64_t ranks = r.at("ranks");
    n.curves[CollectiveKind::all_reduce][ranks].push_back({r.at("bytes"), r.at("median_ms").get<double>() / 1e3});
    n.device_bandwidth = std::max(n.device_bandwidth, 1e9 * r.at("busbw_gbs").get<double>());
    n.devices_per_node = std::max(n.devices_per_node, ranks);
  }
  for (auto& [ranks, curve] : n.curves[CollectiveKind::all_reduce]) {
    std::sort(curve.begin(), curve.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; });
    check(curve.size() >= 2,
          "--network {}: {} ranks were measured with one size; give bench allreduce --mb two or more", name, ranks);
  }
  check(n.device_bandwidth > 0, "--network {}: holds no all-reduce that was measured in fp32{}", name,
        asked.empty() ? "" : " with " + asked);
  n.call_s = INFINITY;
  for (const auto& [ranks, curve] : n.curves[CollectiveKind::all_reduce]) {
    double moved = 2 * double(ranks - 1) / double(ranks) * curve[0].bytes / n.device_bandwidth;
    n.call_s = std::min(n.call_s, std::max(0.0, curve[0].seconds - moved));
  }
  n.node_bandwidth = n.device_bandwidth;
  n.name = backend + " as measured";
  return n;
}

}  // namespace

plan::Network network_or_record(const std::string& name, const std::string& backend) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(name, unknown)) return plan::network_named(name);
  const Json j = parse_json_file(name);
  if (!is_record(j)) return plan::network_named(name);
  const Json record = checked_record(j, name);
  try {
    return network_of(record, name, backend);
  } catch (const Json::exception& e) {
    fail_with(ErrorKind::usage, "--network {}: lacks something that a measured network has: {}", name, message_of(e));
  }
}

}  // namespace sinter::lab
