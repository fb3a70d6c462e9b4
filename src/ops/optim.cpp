// The optimizer's arithmetic: over whole flat buffers, in place, with its numbers on the
// device (core/attrs.h, StepState).
#include "core/folded_update.h"
#include "ops/rules.h"

namespace sinter::ops {
namespace {

void infer_sum_squares(const OpCall& c, OutSpecs& out) {
  rules::check_float(c, 0);
  out.add({(c.in(0).numel() + squares_block - 1) / squares_block}, DType::f64);
}
void infer_nothing(const OpCall&, OutSpecs&) {}

void infer_update(const OpCall& c, OutSpecs&) {
  const Tensor &p = c.in(0), &g = c.in(1);
  check(p.dims() == g.dims(), "{}: parameters {} and gradients {} differ in shape", c.op.name, p.dims(), g.dims());
}

constexpr uint32_t folded_mutates() {
  uint32_t inputs = 0;
  for (int i = 0; i < max_folded; ++i)
    for (FoldedOperand o : {folded_master, folded_m, folded_v, folded_copy}) inputs |= 1u << folded_input(i, o);
  return inputs;
}

}  // namespace

const OpDef sum_squares{.name = "sum_squares",
                        .infer = infer_sum_squares,
                        .kernel = &KernelTable::sum_squares,
                        .samples = {{{{{100003}}}, {}}}};
const OpDef prepare_step{.name = "prepare_step",
                         .infer = infer_nothing,
                         .kernel = &KernelTable::prepare_step,
                         .kind = OpKind::step_numbers,
                         .mutates = 1};
const OpDef adamw{.name = "adamw",
                  .infer = infer_update,
                  .kernel = &KernelTable::adamw,
                  .kind = OpKind::update,
                  .mutates = 0b101101,
                  .with_product = &adamw_product};
const OpDef adamw_product{.name = "adamw_product",
                          .infer = rules::only_compiled,
                          .workspace = workspace::adamw_product,
                          .kernel = &KernelTable::adamw_product,
                          .kind = OpKind::product_update,
                          .mutates = folded_mutates()};
const OpDef sgd{
    .name = "sgd", .infer = infer_update, .kernel = &KernelTable::sgd, .kind = OpKind::update, .mutates = 0b10101};

}  // namespace sinter::ops
