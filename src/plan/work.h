// What a device does in a step, as predictions of time see it: tasks in lanes, each with what it computes, moves or
// sends. Made from a traced step of the engine, or from the shapes of a model that it does not run (layers.h).
#pragma once
#include <string>
#include <vector>

#include "compile/graph.h"
#include "plan/machine.h"
#include "plan/network.h"

namespace sinter::plan {

struct Task {
  enum Kind : uint8_t { product, attention, moves, collective };
  Kind kind = moves;
  bool backward = false;  // of attention
  int lane = compile::main_lane;
  std::string name;            // for the timeline
  uint32_t range = 0;          // where it was made, where that is known
  double flops = 0;            // that are really run
  double m = 0, n = 0, k = 0;  // of a product
  double ctx = 0;              // of attention: keys that a query may see
  double bytes = 0;            // moved at least; of a collective, of the whole
  CollectiveKind operation = CollectiveKind::barrier;
  Ranks ranks = {};             // that make it together
  std::vector<int> waits = {};  // earlier tasks of other lanes
};

struct Work {
  std::string dtype;        // of products
  bool one_by_one = false;  // the host makes each call, rather than replaying them as one
  std::vector<Task> tasks;
  double products() const;  // their FLOPs
};

// Seconds that a task takes when it has the device to itself.
double seconds_of(const Task& task, const std::string& dtype, const Machine& machine, const Network& network);

// Of a step of the engine: after passes, or as it was traced, which is what eager mode runs. `ranks`: of data
// parallelism, those who share a node.
Work work_of(const compile::Graph& graph, const std::string& dtype, bool eager, int64_t devices_per_node);

}  // namespace sinter::plan
