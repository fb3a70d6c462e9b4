// Token ids and what should follow each of them.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace sinter {

// One tensor, so that a compiled pass has one input to copy.
struct Batch {
  Tensor ids;  // (2, batch, ctx) int64: tokens, then targets

  Tensor tokens() const { return part(0); }  // (batch, ctx)
  Tensor targets() const { return part(1); }

 private:
  Tensor part(int64_t i) const {
    return make_view(ids, {ids.size(1), ids.size(2)}, {ids.stride(1), ids.stride(2)}, i * ids.stride(0));
  }
};
Batch random_batch(int64_t batch, int64_t ctx, int64_t vocab, uint64_t seed, DeviceType device);
// Refuses ids outside the vocabulary, as all do that bring ids from the host to a GPU (the other: token_batches.cpp).
Batch batch_from_host(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets, int64_t batch,
                      int64_t ctx, int64_t vocab, DeviceType device);

}  // namespace sinter
