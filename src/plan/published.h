// Training runs that others have published, as data (bench/published_runs.json): what was run on what, and how long a
// step took.
#pragma once
#include <string>
#include <vector>

#include "plan/layers.h"
#include "system/json_fields.h"

namespace sinter::plan {

struct PublishedRun {
  std::string id, source, machine, network, dtype;
  Shape shape;
  Layout layout;
  double node_bandwidth = 0;  // of a node to others, where it was not the network's; 0: it was
  double seconds = 0;         // of a step, measured
  double flops = 0;           // of a step and device, attention counted in full
  std::string assumed;        // what its source does not say
  std::string left_out;       // why it is not counted; empty: it is
};
std::vector<PublishedRun> read_published(const std::string& file);

// What the predictor, and one that takes every step to run at a constant part of the peak, say of each. A source's
// software is described by one number at most, fitted to its other runs; of a single run, to those of other sources.
struct Compared {
  PublishedRun run;
  double raw = 0;                    // seconds, before that number
  double factor = 1, predicted = 0;  // the number, and what follows
  double naive = 0;
  double error() const { return predicted / run.seconds - 1; }
  double naive_error() const { return naive / run.seconds - 1; }
};
std::vector<Compared> compare_published(const std::vector<PublishedRun>& runs);

Shape read_shape(JsonFields fields);
Layout read_layout(JsonFields fields);

}  // namespace sinter::plan
