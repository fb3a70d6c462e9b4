// What pays on which device, as measured: the numbers behind choices that passes of the compiler make. Plain functions
// of sizes, so that a step can be compiled for a device that is not there.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/device.h"
#include "core/kernel_call.h"

namespace sinter::choices {

// Note [Where folding pays]: a tile of 128 × 128 is one multiprocessor's work, however many tokens it sums over, while
// a GEMM of its own can be split along them. So with many tokens and few tiles the GEMM is better left alone. The
// rates are what an H200 does with either (docs/results, h200-compiled); folding may be a little behind, as it also
// takes a call and a gradient's memory away.
inline bool folding_pays(const TensorRef& dy, const TensorRef& weight, int multiprocessors) {
  constexpr double worth = 1.1, launch = 8;  // µs, as are the times below
  double tokens = double(numel(dy)) / double(dy.dims[dy.rank - 1]), elements = double(numel(weight));
  double tiles = std::ceil(double(weight.dims[0]) / 128) * std::ceil(double(weight.dims[1]) / 128);
  double folded = std::max(std::ceil(tiles / multiprocessors) * tokens * 0.007, elements * 26 / 3.3e6) + launch;
  double apart = 2 * tokens * elements / 750e6 + elements * 30 / 4e6 + launch;
  return folded <= worth * apart;
}

// Of the multiprocessors, for updates that run beside the chain of activations' gradients. A folded update fills those
// it gets. In a small model the chain's calls are short and leave room: half goes to updates. In a large one both want
// all of the L2 cache's bandwidth, and take turns.
inline double share_of_updates(DeviceType device, int64_t folded_elements) {
  constexpr int64_t large_model = 1'000'000'000;
  return device == DeviceType::cuda && folded_elements < large_model ? 0.5 : 1;
}

// Units of parameters that ranks share which are gathered before they are read, while another is used.
constexpr size_t units_ahead = 2;

// Naive causal attention in strips of rows.
struct CausalStrips {
  int64_t least_queries = 512;  // with fewer it stays whole
  int64_t least_rows = 256, most = 8;
  double most_work = 0.9;  // of the whole: where more is left, cutting does not pay
};
inline CausalStrips causal_strips(DeviceType device, DType type) {
  CausalStrips s;
  // GEMMs by tensor cores are so fast that shorter strips do not pay for their number (measured on an H200).
  if (device == DeviceType::cuda && is_16bit(type)) s.least_rows = 1024;
  return s;
}
// Whether GEMMs of such a matrix leave multiprocessors idle, so that others should run beside them.
inline bool leaves_room(int64_t matrix_bytes) { return matrix_bytes <= int64_t(256) << 20; }
// What a GEMM on CUDA gets that runs in a chain beside others, each with scratch memory of its own.
constexpr int64_t most_scratch_of_chain = int64_t(8) << 20;

}  // namespace sinter::choices
