// What a training step costs, by equations alone: parameters, FLOPs, memory, communication, and where communication
// limits it. docs/plan.md explains the equations; predictions that are exact to the byte are the walk's (walk.h).
#pragma once
#include "plan/sheet.h"
#include "train/run_config.h"

namespace sinter::plan {

// Devices that are data ranks × tensor ranks, all alike.
struct Mesh {
  int64_t data = 1, tensor = 1;
  int64_t data_links = 1, tensor_links = 1;  // of a device's links, those that carry each axis
  double flops = 0, bandwidth = 0;           // of a device in FLOP/s, of one of its links in B/s
  double memory = 0;                         // of a device, in bytes
  double call_s = 0;                         // what a collective costs beside its bytes
};

struct CostQuestion {
  ModelConfig model;
  int64_t batch = 1;  // sequences of each data rank
  // Of blocks with a feed-forward of two matrices and nothing else, neither attention nor norms nor ends.
  bool linears_only = false;
  int64_t product_bytes = 4;  // of a number that a product reads, and of a gathered parameter: 2 in 16 bits
  bool copies = false;        // 16-bit copies of parameters stand beside fp32 masters
  ShardLevel shard = ShardLevel::none;
  Mesh mesh;
};

// Refuses what cannot be divided so, with the flags that say it.
void check_question(const CostQuestion& question);

Sheet cost_sheet(const CostQuestion& question);

// A very large model on TPUs, whose answers are worked out in docs/plan.md.
CostQuestion xxl_question();
// More lines for its sheet: what it needs on one device; and of a mesh that gathers parameters, how its shape, what is
// communicated and dividing sequences move the batch from which it is compute-bound.
void add_xxl_answers(Sheet& sheet, const CostQuestion& question);

}  // namespace sinter::plan
