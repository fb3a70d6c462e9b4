#include "train/batch.h"

#include "core/range.h"
#include "ops/ops.h"

namespace sinter {

Batch random_batch(int64_t batch, int64_t ctx, int64_t vocab, uint64_t seed, DeviceType device) {
  check(batch > 0, "--batch must be at least 1, not {}", batch);
  check(ctx > 0, "--ctx must be at least 1, not {}", ctx);
  Range range("batch");
  Batch b{empty({2, batch, ctx}, DType::i64, device)};
  fill_integers(b.tokens(), seed, 1, 0, vocab);
  fill_integers(b.targets(), seed, 2, 0, vocab);
  return b;
}

Batch batch_from_host(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets, int64_t batch,
                      int64_t ctx, int64_t vocab, DeviceType device) {
  for (auto* part : {&tokens, &targets})
    check(int64_t(part->size()) == batch * ctx, "a batch of shape ({}, {}) was given {} values", batch, ctx,
          part->size());
  std::vector<int64_t> ids = tokens;
  ids.insert(ids.end(), targets.begin(), targets.end());
  for (int64_t id : ids)
    check(id >= 0 && id < vocab, "token id {} is outside the vocabulary of {}; use --vocab {} or more", id, vocab,
          id + 1);
  return {from_vector(ids, {2, batch, ctx}, device)};
}

}  // namespace sinter
