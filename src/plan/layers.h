// A Transformer's step from its shapes alone, divided among devices in ways the engine does not run: what a device does
// for a micro-batch, and how stages of a pipeline follow each other.
//
// Note [Layers as work]: a layer has its products, its attention, and the bytes that everything else moves. Those
// depend on the program: one that makes every call by itself moves a number of the stream's and of the inner width's
// values that is known well enough (stream_bytes, inner_bytes); one that fuses them moves `fused` of it. The backward
// pass has twice the products and 2.5 times attention's FLOPs, and what was not kept is computed again before.
#pragma once
#include <string>

#include "plan/simulator.h"

namespace sinter::plan {

struct Shape {
  int64_t d_model = 0, d_ff = 0, layers = 0, heads = 0, kv_heads = 0, vocab = 0, ctx = 0;
  bool gated = true;             // two matrices into the feed-forward, or one
  bool tied = false;             // embedding and head are one
  bool naive_attention = false;  // scores and probabilities are in memory
  int64_t positions = 0;         // rows of a table of positions; 0: none
  double parameters() const;
  double flops_of_token() const;  // forward and backward, attention counted in full
};

struct Layout {
  int64_t data = 1, tensor = 1, pipeline = 1, context = 1;  // their product is the number of devices
  int64_t interleave = 1;                                   // parts of the model on a stage
  int64_t micro_batch = 1, micro_batches = 1;               // sequences; of a data rank in a step
  enum Shard { none, optimizer, gradients, parameters } shard = none;
  int64_t shard_ranks = 0;           // data ranks that divide; the others hold the same again. 0: all
  double recompute = 0;              // of the forward pass of layers, computed again
  bool recompute_attention = false;  // of them, attention's core alone
  bool sequence_parallel = false;    // tensor ranks divide the stream between layers too
  enum Strategy { bucketed, flat } strategy = bucketed;  // without sharding
  double wire_bytes = 2;                                 // of a number that is reduced or gathered
  double fused = 1;  // of what is neither product nor attention, what the program moves
  int64_t devices() const { return data * tensor * pipeline * context; }
};

// Refuses what cannot be divided so, naming the numbers.
void check_layout(const Shape& shape, const Layout& layout);

struct SimulatedStep {
  double seconds = 0, communication = 0, exposed = 0, bubble = 0;
  double memory_bytes = 0;  // of a device, by closed forms
  Work work;                // one micro-batch of a stage, for the timeline
  Timeline timeline;
};
SimulatedStep simulate_layers(const Shape& shape, const Layout& layout, const std::string& dtype,
                              const Machine& machine, const Network& network, const Conditions& conditions = {});
// The memory of that alone, which takes no time to say.
double memory_of_layers(const Shape& shape, const Layout& layout, const std::string& dtype, const Network& network);

}  // namespace sinter::plan
