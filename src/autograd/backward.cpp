#include <algorithm>

#include "autograd/node.h"
#include "core/range.h"
#include "ops/ops.h"

namespace sinter {
namespace {

thread_local int64_t pass_count = 0;

}  // namespace

// One backward pass; also what gradient rules talk to.
class Backward : public GradCall {
 public:
  void run(const Tensor& loss, const Tensor& seed) {
    auto* root = static_cast<Node*>(loss.impl().target.get());
    collect(root);
    root->out[loss.impl().output_index].grad = seed;
    RangeFollower place;
    for (Node* n : nodes_) {
      place.follow(*n->range);
      run_node(*n);
    }
  }

 private:
  // --- the walk ---------------------------------------------------------------------------------------------------

  void collect(Node* root) {
    int64_t pass = ++pass_count;
    std::vector<Node*> stack{root};
    root->visited = pass;
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      check(!n->done, "backward: this graph was already used by an earlier backward(); run the forward pass again");
      nodes_.push_back(n);
      for (int i = 0; i < n->n_in; ++i) {
        GradientTarget* t = n->in[i].target.get();
        if (!t) continue;
        if (t->is_leaf()) {
          expect_contribution(static_cast<Leaf&>(*t), pass);
        } else if (auto* next = static_cast<Node*>(t); next->visited != pass) {
          next->visited = pass;
          stack.push_back(next);
        }
      }
    }
    // Newest first: when a node's turn comes, everything that used its outputs has run.
    std::sort(nodes_.begin(), nodes_.end(), [](Node* a, Node* b) { return a->sequence > b->sequence; });
    for (Node* n : nodes_) alive_.emplace_back(n);
  }

  // A pass that was refused half-way may have left a count behind; a new pass starts from 0.
  static void expect_contribution(Leaf& leaf, int64_t pass) {
    if (Recorder* recorder = context().recorder) recorder->leaf_used(leaf);
    if (leaf.pass != pass) leaf.pending = 0;
    leaf.pass = pass;
    ++leaf.pending;
  }

  void run_node(Node& n) {
    bool any = false;
    for (int j = 0; j < n.n_out; ++j) any |= n.out[j].grad.defined();
    if (any) {
      for (int j = 0; j < n.n_out; ++j)  // an output nobody used contributes zero
        if ((n.op->differentiable >> j & 1) && !n.out[j].grad.defined())
          n.out[j].grad = zeros(n.out[j].dims, n.out[j].dtype, n.device);
      check_saved(n);
      node_ = &n;
      n.op->grad(*this);
    }
    for (int i = 0; i < n.n_in; ++i) contribution_done(n.in[i]);
    n.done = true;
    for (auto& in : n.in) {
      in.saved = {};
      in.target = {};
    }
    for (auto& out : n.out) out.saved = out.grad = {};
  }

  // Memory that is away is brought to be compared: it has the version of what it was gathered from.
  static void check_saved(const Node& n) {
    for (int i = 0; i < n.n_in; ++i) {
      if (!n.in[i].saved.defined()) continue;
      TensorImpl& saved = n.in[i].saved.impl();
      if (!saved.storage) saved.lender->lend(saved);
      check(saved.storage->version == n.in[i].saved_version,
            "backward of {}: input {} was changed in place after the forward pass, its gradient would be wrong",
            n.op->name, i);
    }
    for (int j = 0; j < n.n_out; ++j)
      check(!n.out[j].saved.defined() || n.out[j].saved.impl().storage->version == n.out[j].saved_version,
            "backward of {}: its result was changed in place after the forward pass, the gradient would be wrong",
            n.op->name);
  }

  void contribution_done(const Node::Input& in) {
    if (!in.target || !in.target->is_leaf()) return;
    auto& leaf = static_cast<Leaf&>(*in.target);
    if (--leaf.pending == 0)
      for (auto& hook : leaf.hooks) hook(leaf);
  }

  // --- what rules see ---------------------------------------------------------------------------------------------

  const Tensor& input(int i) const override { return saved_input(*node_, i); }
  const Tensor& output(int j) const override { return node_->out[j].saved; }
  const Tensor& grad(int j) const override { return node_->out[j].grad; }
  Dims input_dims(int i) const override { return node_->in[i].dims; }
  DType input_dtype(int i) const override { return node_->in[i].dtype; }
  bool needs(int i) const override { return bool(node_->in[i].target); }
  const Attrs& attrs() const override { return node_->attrs; }

  // Note [Recomputation]: the result is left with its producer, for other consumers.
  static const Tensor& saved_input(Node& n, int i) {
    Node::Input& in = n.in[i];
    if (!in.again) return in.saved;
    auto& producer = static_cast<Node&>(*in.target);
    Tensor& result = producer.out[in.slot].saved;
    if (!result.defined()) {
      const Tensor* inputs[max_recorded_inputs];
      for (int k = 0; k < producer.n_in; ++k) inputs[k] = &saved_input(producer, k);
      check_saved(producer);
      Autocast precision(producer.autocast);
      CategoryScope scope(MemoryCategory::temporary);
      Range range("again");
      result = dispatch_op(*producer.op, {inputs, size_t(producer.n_in)}, producer.attrs)[in.slot];
    }
    return result;
  }

  void emit(std::span<const int> targets, const OpDef& op, TensorPtrs inputs, const Attrs& attrs) override {
    Destination d;
    d.optional = true;
    bool any = false;
    for (size_t j = 0; j < targets.size(); ++j) {
      if (targets[j] < 0 || !needs(targets[j])) continue;
      any = true;
      if (is_shared(targets, j)) continue;
      if ((d.out[j] = place_of(node_->in[targets[j]]))) d.accumulate |= uint32_t(holds_sum(node_->in[targets[j]])) << j;
    }
    if (!any) return;
    CategoryScope scope(MemoryCategory::temporary);
    Outputs outputs = dispatch_op(op, inputs, attrs, &d);
    for (size_t j = 0; j < targets.size(); ++j) {
      if (targets[j] < 0 || !needs(targets[j])) continue;
      Node::Input& in = node_->in[targets[j]];
      bool in_place = d.out[j] && &outputs[int(j)].impl() == &d.out[j]->impl();
      if (!in_place) deliver(in, std::move(outputs.t[j]));
      else if (in.target->is_leaf()) static_cast<Leaf&>(*in.target).has_grad = true;
    }
  }

  // Another output of the same call is a gradient of the same tensor: they must be added, not written over each other.
  bool is_shared(std::span<const int> targets, size_t j) const {
    const Node::Input& in = node_->in[targets[j]];
    for (size_t k = 0; k < targets.size(); ++k) {
      if (k == j || targets[k] < 0) continue;
      const Node::Input& other = node_->in[targets[k]];
      if (other.target.get() == in.target.get() && other.slot == in.slot) return true;
    }
    return false;
  }

  void give(int i, const Tensor& grad) override {
    if (needs(i)) deliver(node_->in[i], grad);
  }

  // The tensor an input's gradient may be written or added to directly, if there is one.
  static const Tensor* place_of(const Node::Input& in) {
    if (in.target->is_leaf()) {
      auto& leaf = static_cast<Leaf&>(*in.target);
      if (leaf.make_grad) leaf.make_grad();
      const Tensor& grad = leaf.grad;
      return grad.defined() && grad.is_contiguous() && grad.dims() == in.dims ? &grad : nullptr;
    }
    const Tensor& sum = static_cast<Node&>(*in.target).out[in.slot].grad;
    return sum.defined() && sum.is_exclusive() && sum.is_contiguous() ? &sum : nullptr;
  }
  static bool holds_sum(const Node::Input& in) {
    return !in.target->is_leaf() || static_cast<Leaf&>(*in.target).has_grad;
  }

  void deliver(Node::Input& in, Tensor grad) {
    CategoryScope scope(MemoryCategory::temporary);
    if (in.target->is_leaf()) return deliver_to_leaf(static_cast<Leaf&>(*in.target), in, grad);
    grad = cast(grad, in.dtype);
    Tensor& sum = static_cast<Node&>(*in.target).out[in.slot].grad;
    if (!sum.defined()) sum = std::move(grad);
    else if (sum.is_exclusive() && sum.is_contiguous()) add_into(sum, grad);
    else sum = add(sum, grad);
  }

  void deliver_to_leaf(Leaf& leaf, const Node::Input& in, const Tensor& grad) {
    if (leaf.make_grad) leaf.make_grad();
    if (!leaf.grad.defined()) {
      CategoryScope scope(MemoryCategory::gradient);
      leaf.grad = empty(in.dims, in.dtype, grad.device());
    }
    leaf.has_grad ? add_into(leaf.grad, grad) : copy_into(leaf.grad, grad);
    leaf.has_grad = true;
  }

  std::vector<Node*> nodes_;
  std::vector<Ref<Node>> alive_;
  Node* node_ = nullptr;
};

void backward(const Tensor& loss, const Tensor& seed) {
  check(loss.defined() && loss.requires_grad(), "backward: the loss depends on nothing that requires a gradient");
  check(!leaf_of(loss), "backward: the loss is itself a leaf");
  check(seed.defined() ? seed.dims() == loss.dims() : loss.numel() == 1,
        "backward: a loss of shape {} needs a seed of that shape", loss.dims());
  NoGrad off;
  Autocast plain(std::nullopt);  // gradients follow the types of the forward pass
  Backward().run(loss, seed.defined() ? seed : full(loss.dims(), 1, loss.dtype(), loss.device()));
}

}  // namespace sinter
