#include "lab/divided_model.h"

#include "core/check.h"

namespace sinter::lab {

plan::Shape shape_of(const MeasuredRun& run, bool ungated) {
  const ModelConfig& m = run.model;
  plan::Shape s;
  s.d_model = m.d_model, s.d_ff = m.d_ff, s.layers = m.layers, s.heads = m.heads, s.kv_heads = m.key_value_heads();
  s.vocab = m.vocab, s.ctx = m.ctx;
  s.gated = !ungated, s.tied = m.tied_embeddings;
  s.naive_attention = m.attention.kind == AttentionKind::naive;
  return s;
}

plan::Layout layout_of(const MeasuredRun& run, ShardLevel level) {
  check(level != ShardLevel::broadcast, "--shard broadcast: it is there to compare with, and is not simulated");
  plan::Layout l;
  l.micro_batch = run.batch, l.micro_batches = run.accumulate;
  l.shard = level == ShardLevel::optimizer    ? plan::Layout::optimizer
            : level == ShardLevel::gradients  ? plan::Layout::gradients
            : level == ShardLevel::parameters ? plan::Layout::parameters
                                              : plan::Layout::none;
  l.fused = run.mode == Mode::compiled ? 0.4 : 1;
  l.wire_bytes = run.precision.compute && level == ShardLevel::parameters ? 2 : 4;
  return l;
}

}  // namespace sinter::lab
