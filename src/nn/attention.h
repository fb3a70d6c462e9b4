// Attention as a model calls it, and the one place that decides which implementation runs.
#pragma once
#include <string>

#include "backend/device.h"
#include "core/attrs.h"
#include "core/tensor.h"

namespace sinter {

// naive: spelled out, the scores are kept. flash: the device's fastest kernel that does not keep them. tiled: the CPU's
// readable reference of the same algorithm. portable: CUDA's flash for any GPU since compute capability 8.0.
enum class AttentionKind : uint8_t { automatic, naive, tiled, flash, portable };
const char* name_of(AttentionKind kind);
AttentionKind attention_named(const std::string& name);  // --attention; refuses others by listing what there is

struct AttentionOptions {
  AttentionKind kind = AttentionKind::automatic;
  bool deterministic = false;  // backward gives the same bits every time
  int32_t tile = 0;            // rows and columns of a tile, for tiled and portable; 0: the kernel's choice
};

struct AttentionChoice {
  AttentionKind kind;  // never automatic
  std::string why;     // for people
};
// What `wanted` means on a device (every float type it has is taken alike). automatic: flash where there is a kernel,
// otherwise naive. Anything else that cannot run there is refused, with the remedy.
AttentionChoice choose_attention(AttentionKind wanted, const DeviceInfo& device, int64_t head_dim);

// softmax(q·kᵀ/√D)·v. q: (batch, heads, positions, D); k and v alike, with as many heads or fewer, shared evenly.
// Causal: query i sees keys j <= i + offset, which is the number of keys before the first query's own.
// options.kind must have been chosen.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const AttentionOptions& options,
              int64_t offset = 0);
// The same, spelled out: scores are materialised.
Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, int64_t offset = 0);

}  // namespace sinter
