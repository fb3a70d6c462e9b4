// What lies between devices, and how long a collective takes on it.
//
// Note [Collectives in time]: a ring moves (n - 1)/n of the bytes past each rank, twice for an all-reduce, at the rate
// of its slowest hop, and waits for the latency of each of its n - 1 steps. A ring over nodes enters and leaves each
// node once for each of its ranks there, so that ranks of a node share its links to others but each brings its own. A
// tree waits for two latencies a level, of which there are log2 of the nodes. NCCL takes what is faster, and so does
// this. Where the curve of a collective was measured, it is read from the curve.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "backend/process_group.h"

namespace sinter::plan {

// Ranks of a collective, and how many of them share a node.
struct Ranks {
  int64_t count = 1, per_node = 1;
};

struct Network {
  std::string name;
  int64_t devices_per_node = 8;
  // Bytes per second each way: of a device to others of its node, and of a node to other nodes. Collectives reach
  // parts of them.
  double device_bandwidth = 0, node_bandwidth = 0, device_reach = 1, node_reach = 1;
  double device_latency = 0, node_latency = 0, call_s = 0;
  bool shares_device = false;  // ranks compute on one device: not a scaling result
  struct Point {
    double bytes, seconds;
  };
  // Measured: by kind and number of ranks, by bytes.
  std::map<CollectiveKind, std::map<int64_t, std::vector<Point>>> curves;

  double seconds(CollectiveKind kind, double bytes, const Ranks& ranks) const;  // bytes: of the whole
  double hop_seconds(double bytes, bool between_nodes) const;                   // from one device to another
};

// A file's path, or one of known_networks(); refuses what is broken with line, field and reason.
Network network_named(const std::string& name_or_file);
std::vector<std::string> known_networks();

}  // namespace sinter::plan
