#include "autograd/tape.h"

#include "autograd/node.h"

namespace sinter {
namespace {

thread_local int64_t next_sequence = 0;

// Saved tensors keep their memory but not their place on the tape: an output that kept its
// own node alive would be a cycle.
// A leaf is saved as it is: its memory may go and come back (Lender in core/tensor.h).
Tensor saved(const Tensor& t) { return t.impl().target && !t.impl().target->is_leaf() ? t.detach() : t; }

// Whether the op that made this input is cheap and keeps all it was made from (Note [Recomputation]).
bool can_compute_again(const Node::Input& in) {
  if (!in.target || in.target->is_leaf()) return false;
  auto& producer = static_cast<Node&>(*in.target);
  uint32_t all = (1u << producer.n_in) - 1;
  return producer.op->cheap && (producer.op->saves_inputs & all) == all;
}

void record(const OpCall& used, TensorPtrs inputs, const Outputs& outputs) {
  bool any = false;
  for (const Tensor* t : inputs) any |= t->requires_grad();
  if (!any) return;
  const OpDef& op = used.op;
  if (inputs.size() > max_recorded_inputs)
    fail_with(ErrorKind::other, "{}: {} inputs are more than the tape records", op.name, inputs.size());

  Ref<Node> node = new Node;
  node->op = &op;
  node->attrs = used.attrs;
  node->sequence = ++next_sequence;
  node->device = outputs[0].device();
  node->range = &Range::current();
  node->autocast = used.autocast;
  node->n_in = int(inputs.size());
  node->n_out = outputs.n;
  for (int i = 0; i < node->n_in; ++i) {
    Node::Input& in = node->in[i];
    const Tensor &given = *inputs[i], &read = used.in(i);
    // A leaf read through its 16-bit copy gets its gradient itself; anything else was cast by a recorded call.
    const TensorImpl& source = read.impl().target ? read.impl() : given.impl();
    bool leaf_copy = !read.impl().target && given.impl().target && given.impl().target->is_leaf();
    in.dims = read.dims();
    in.dtype = leaf_copy ? given.dtype() : read.dtype();
    if (source.requires_grad) {
      in.target = source.target;
      in.slot = source.output_index;
    }
    if (!(op.saves_inputs >> i & 1)) continue;
    if ((in.again = can_compute_again(in))) continue;
    in.saved = saved(read);
    in.saved_version = in.saved.impl().storage->version;
  }
  for (int j = 0; j < outputs.n; ++j) {
    Node::Output& out = node->out[j];
    out.dims = outputs[j].dims();
    out.dtype = outputs[j].dtype();
    if (op.saves_outputs >> j & 1) {
      out.saved = outputs[j].detach();
      out.saved_version = out.saved.impl().storage->version;
    }
    if (op.differentiable >> j & 1) {
      outputs[j].impl().requires_grad = true;
      outputs[j].impl().target = node.get();
      outputs[j].impl().output_index = j;
    }
  }
}

[[maybe_unused]] const bool installed = (record_gradient = record, true);

}  // namespace

// A tape dropped without backward is a chain as long as the program: it is taken apart in a loop, not by recursion.
Node::~Node() {
  std::vector<Ref<GradientTarget>> dropped;
  auto take_targets = [&dropped](Node& n) {
    for (Input& i : n.in)
      if (i.target && !i.target->is_leaf()) dropped.push_back(std::move(i.target));
  };
  take_targets(*this);
  while (!dropped.empty()) {
    Ref<GradientTarget> t = std::move(dropped.back());
    dropped.pop_back();
    if (t->use_count() == 1) take_targets(static_cast<Node&>(*t));
  }
}

Leaf& require_grad(const Tensor& x) {
  check(is_float(x.dtype()), "only float tensors have gradients, not {}", name_of(x.dtype()));
  if (Leaf* l = leaf_of(x)) return *l;
  check(!x.impl().target, "require_grad: the tensor is the result of {}; only leaves own a gradient, detach() it first",
        x.impl().target ? static_cast<Node&>(*x.impl().target).op->name : "");
  auto* leaf = new Leaf;
  x.impl().target = leaf;
  x.impl().requires_grad = true;
  return *leaf;
}

Leaf* leaf_of(const Tensor& x) {
  GradientTarget* t = x.impl().target.get();
  return t && t->is_leaf() ? static_cast<Leaf*>(t) : nullptr;
}

Tensor grad_of(const Tensor& x) {
  Leaf* l = leaf_of(x);
  check(l != nullptr, "grad_of: the tensor is not a leaf; call require_grad on it before using it");
  return l->has_grad ? l->grad : Tensor();
}

void zero_grad(const Tensor& x) {
  Leaf* l = leaf_of(x);
  if (!l) return;
  if (Recorder* recorder = context().recorder) recorder->leaf_reset(*l);
  l->has_grad = false;
}

}  // namespace sinter
