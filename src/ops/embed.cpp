#include "ops/rules.h"

namespace sinter {

namespace ops {
namespace {

struct EmbeddingAttrs {
  int64_t vocab = 0;
};  // of embedding_backward

void infer_embedding(const OpCall& c, OutSpecs& out) {
  check(c.in(0).rank() == 2, "embedding: the table must be (vocab, width), not {}", c.in(0).dims());
  Dims dims = c.in(1).dims();
  dims.push_back(c.in(0).size(1));
  out.add(dims, c.in(0).dtype());
}
void grad_embedding(GradCall& g) {
  g.emit_to(0, embedding_backward, Attrs::of(EmbeddingAttrs{g.input_dims(0)[0]}), g.input(1), g.grad(0));
}
void infer_embedding_backward(const OpCall& c, OutSpecs& out) {
  out.add({c.attrs_as<EmbeddingAttrs>().vocab, c.in(1).size(-1)}, rules::wide(c.in(1).dtype()));
}

}  // namespace

// y[…] = table[ids[…]]. Under mixed precision the residual stream begins in fp32: rows come from the master.
const OpDef embedding{.name = "embedding",
                      .infer = infer_embedding,
                      .grad = grad_embedding,
                      .cost = rules::per_element,
                      .kernel = &KernelTable::embedding,
                      .saves_inputs = 0b10,
                      .gathers = 1,
                      .samples = {{{{{7, 5}}, {{2, 3}, SampleInput::token_ids, 7}}, {}},
                                  {{{{50, 64}}, {{40}, SampleInput::token_ids, 50}}, {}}}};

const OpDef embedding_backward{
    .name = "embedding_backward",
    .infer = infer_embedding_backward,
    .cost = rules::per_element,
    .workspace = workspace::embedding_backward,
    .kernel = &KernelTable::embedding_backward,
    .accumulates = 1,
    .samples = {{{{{2, 3}, SampleInput::token_ids, 7}, {{2, 3, 5}}}, Attrs::of(EmbeddingAttrs{7})}}};

}  // namespace ops

Tensor embedding(const Tensor& table, const Tensor& ids) {
  rules::check_ids("embedding", ids, table.size(0));
  return dispatch(ops::embedding, {}, table, ids)[0];
}

}  // namespace sinter
