// y = silu(gate) · up, with gate | up side by side as one GEMM leaves them.
#include "ops/row_program.h"
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

void infer_swiglu(const OpCall& c, OutSpecs& out) {
  rules::check_float(c, 0);
  check(c.in(0).rank() >= 1 && c.in(0).size(-1) % 2 == 0, "swiglu: the last dimension of {} must hold gate and up",
        c.in(0).dims());
  out.add(c.in(0).dims().with_last(c.in(0).size(-1) / 2), c.in(0).dtype());
}
void grad_swiglu(GradCall& g) { g.emit_to(0, swiglu_backward, {}, g.input(0), g.grad(0)); }
void infer_swiglu_backward(const OpCall& c, OutSpecs& out) { rules::same_as(0, c, out); }

using F = PointwiseFn;
using workspace::last_dim;

constexpr RowOperand gate_half{0, Varies::element, Columns::left_half},
    up_half{0, Varies::element, Columns::right_half};
// Halves begin at whole vectors of 16 bytes.
bool has_aligned_halves(const KernelCall& c) { return last_dim(c.in[0]) % 16 == 0; }

bool rows_of_swiglu(RowProgram& p) {
  p.need_rows(last_dim(p.call().out[0]));
  int gate = p.read(gate_half), up = p.read(up_half);
  p.write({0}, p.map(F::mul, p.map(F::silu, gate), up));
  return has_aligned_halves(p.call());
}
bool rows_of_swiglu_backward(RowProgram& p) {
  p.need_rows(last_dim(p.call().in[1]));
  int gate = p.read(gate_half), up = p.read(up_half), dy = p.read({1});
  p.write(gate_half, p.map(F::silu_backward, gate, p.map(F::mul, dy, up)));
  p.write(up_half, p.map(F::mul, dy, p.map(F::silu, gate)));
  return has_aligned_halves(p.call());
}

}  // namespace

const OpDef swiglu{.name = "swiglu",
                   .infer = infer_swiglu,
                   .grad = grad_swiglu,
                   .cost = rules::per_element,
                   .kernel = &KernelTable::swiglu,
                   .saves_inputs = 1,
                   .cheap = true,
                   .accepts = rules::rows,
                   .row_program = rows_of_swiglu,
                   .samples = {{{{{2, 3, 8}}}, {}}, {{{{5, 258}}}, {}}}};

const OpDef swiglu_backward{.name = "swiglu_backward",
                            .infer = infer_swiglu_backward,
                            .cost = rules::per_element,
                            .kernel = &KernelTable::swiglu_backward,
                            .accepts = rules::rows,
                            .row_program = rows_of_swiglu_backward,
                            .samples = {{{{{2, 3, 8}}, {{2, 3, 4}}}, {}}}};

}  // namespace ops

Tensor swiglu(const Tensor& gate_up) { return dispatch(ops::swiglu, {}, gate_up)[0]; }

}  // namespace sinter
