// Mean cross-entropy of integer targets, log-softmax in fp32 whatever the type of the logits.
#include "ops/rules.h"

namespace sinter {

// Ids are checked where that costs nothing; on a GPU they are checked when they are uploaded (batch_from_host). A
// traced step cannot know them: there a wrong one becomes NaN.
void rules::check_ids(const char* op, const Tensor& given, int64_t limit) {
  check(given.dtype() == DType::i64 || given.dtype() == DType::i32, "{}: token ids must be int64 or int32, not {}", op,
        name_of(given.dtype()));
  if (given.device() != DeviceType::cpu || context().recorder) return;
  Tensor ids = contiguous(given);
  for (int64_t i = 0, n = ids.numel(); i < n; ++i) {
    int64_t id = ids.dtype() == DType::i64 ? ids.data_as<int64_t>()[i] : ids.data_as<int32_t>()[i];
    check(id >= 0 && id < limit, "{}: token id {} at position {} is outside the vocabulary of {}; use a larger --vocab",
          op, id, i, limit);
  }
}

namespace ops {
namespace {

void infer_cross_entropy(const OpCall& c, OutSpecs& out) {
  rules::check_float(c, 0);
  const Tensor &logits = c.in(0), &targets = c.in(1);
  check(logits.rank() == 2 && targets.rank() == 1 && targets.size(0) == logits.size(0) && logits.size(0) > 0,
        "cross_entropy: logits {} and targets {} do not fit", logits.dims(), targets.dims());
  out.add({}, rules::wide(logits.dtype()));
  out.add({logits.size(0)}, rules::wide(logits.dtype()));
}
void grad_cross_entropy(GradCall& g) {
  g.emit_to(0, cross_entropy_backward, {}, g.input(0), g.input(1), g.output(1), g.grad(0));
}
void infer_cross_entropy_backward(const OpCall& c, OutSpecs& out) {
  out.add_strided(c.in(0).dims(), c.in(0).dtype(), c.in(0).strides());  // padded as the logits are
}
Cost cost_loss(const OpCall& c, const Outputs&) { return {0, 4.0 * double(c.in(0).numel())}; }

}  // namespace

const OpDef cross_entropy{.name = "cross_entropy",
                          .infer = infer_cross_entropy,
                          .grad = grad_cross_entropy,
                          .cost = cost_loss,
                          .workspace = workspace::cross_entropy,
                          .kernel = &KernelTable::cross_entropy,
                          .autocast = AutocastPolicy::internal,
                          .saves_inputs = 0b11,
                          .saves_outputs = 0b10,
                          .accepts = rules::rows,
                          .samples = {{{{{6, 11}}, {{6}, SampleInput::token_ids, 11}}, {}},
                                      {{{{3, 1000}}, {{3}, SampleInput::token_ids, 1000}}, {}}}};

const OpDef cross_entropy_backward{.name = "cross_entropy_backward",
                                   .infer = infer_cross_entropy_backward,
                                   .cost = cost_loss,
                                   .kernel = &KernelTable::cross_entropy_backward,
                                   .accepts = rules::rows,
                                   .samples = {{{{{6, 11}},
                                                 {{6}, SampleInput::token_ids, 11},
                                                 {{6}, SampleInput::positive, 0, true},
                                                 {{}, SampleInput::normal, 0, true}},
                                                {}}}};

const OpDef cross_entropy_in_place{.name = "cross_entropy_in_place",
                                   .infer = rules::only_compiled,
                                   .workspace = workspace::cross_entropy,
                                   .kernel = &KernelTable::cross_entropy,
                                   .mutates = 1};

}  // namespace ops

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  rules::check_ids("cross_entropy", targets, logits.size(-1));
  return dispatch(ops::cross_entropy, {}, reshape(logits, {-1, logits.size(-1)}), reshape(targets, {-1}))[0];
}

}  // namespace sinter
