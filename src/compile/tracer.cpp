#include "compile/tracer.h"

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "memory/promised_storage.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// Memory that exists by address only. One for each thread, never destroyed: a tensor that wrongly outlives
// its trace may still be released.
class TracedMemory : public Allocator {
 public:
  struct Block {
    int64_t bytes;
    MemoryCategory category;
    const RangeNode* range;
    TensorRef holds;
    bool released = false;
  };

  Allocation allocate(int64_t bytes, void*, const TensorRef* holds) override {
    uint64_t address = next_;
    next_ += uint64_t(bytes + 4095) / 4096 * 4096 + 4096;
    Block b{bytes, CategoryScope::current(), &Range::current(), {}};
    if (holds) b.holds = *holds;
    else b.holds.rank = -1;
    blocks_[address] = b;
    return {reinterpret_cast<void*>(address), reinterpret_cast<void*>(address)};
  }
  void release(void* token) noexcept override {
    auto it = blocks_.find(reinterpret_cast<uint64_t>(token));
    if (it != blocks_.end()) it->second.released = true;
  }

  bool owns(const void* p) const { return reinterpret_cast<uint64_t>(p) >= first_; }
  std::pair<const uint64_t, Block>& block_of(const void* p) {
    return *std::prev(blocks_.upper_bound(reinterpret_cast<uint64_t>(p)));
  }
  void clear() { blocks_.clear(); }
  const std::map<uint64_t, Block>& blocks() const { return blocks_; }

  static TracedMemory& instance() {
    static thread_local auto* memory = new TracedMemory;
    return *memory;
  }

 private:
  static constexpr uint64_t first_ = uint64_t(1) << 62;  // where no device has memory
  uint64_t next_ = first_;
  std::map<uint64_t, Block> blocks_;
};

class Tracer : public Recorder {
 public:
  explicit Tracer(DeviceType device) {
    graph_.device = device;
    graph_.target = target_of(device);
  }

  Allocator& allocator() override { return memory_; }

  void record(const OpCall& call, const Outputs& outputs, const KernelCall& kernel) override {
    Node n;
    n.op = &call.op;
    n.range = &Range::current();
    n.call = OwnedCall(kernel);
    for (int i = 0; i < kernel.n_in; ++i) n.in.push_back(operand(call.in(i))), n.call.input(i).data = nullptr;
    for (int j = 0; j < kernel.n_out; ++j) n.out.push_back(operand(outputs[j])), n.call.output(j).data = nullptr;
    if (kernel.workspace) n.workspace = {traced_buffer(kernel.workspace), 0};
    if (call.op.cost) n.cost = call.op.cost(call, outputs);
    n.bytes = bytes_moved(call, outputs);
    n.call.workspace = nullptr;
    n.call.stream = nullptr;
    graph_.nodes.push_back(std::move(n));
  }

  void record_action(HostAction action, TensorPtrs reads, TensorPtrs writes) override {
    Node n;
    n.op = &ops::host_action;
    n.range = &Range::current();
    n.action = std::make_shared<const HostAction>(std::move(action));
    n.lane = host_lane;
    auto without_address = [](TensorRef t) { return t.data = nullptr, t; };
    for (const Tensor* t : reads) n.add_input(operand(*t), without_address(t->ref()));
    for (const Tensor* t : writes) n.add_output(operand(*t), without_address(t->ref()));
    graph_.nodes.push_back(std::move(n));
  }

  void leaf_used(GradientTarget& leaf) override { note(leaf, true); }
  void leaf_reset(GradientTarget& leaf) override { note(leaf, false); }

  Windows windows() {
    for (Windows::Window& w : windows_.leaves) w.after = static_cast<Leaf&>(*w.leaf).has_grad;
    return windows_;
  }
  ~Tracer() override {
    for (const Windows::Window& w : windows_.leaves) {
      auto& leaf = static_cast<Leaf&>(*w.leaf);
      leaf.has_grad = w.before;
      if (leaf.grad.defined() && memory_.owns(leaf.grad.data()))
        leaf.grad = {};  // made, and refused: eager mode makes its own
    }
  }

  Graph finish(const std::vector<Tensor>& outputs) {
    for (const Tensor& t : outputs) {
      check(t.defined(), "a traced step returned an empty Tensor");
      graph_.outputs.push_back(operand(t));
      graph_.output_refs.push_back(t.ref());
      graph_.output_refs.back().data = nullptr;
      graph_.buffers[size_t(graph_.outputs.back().buffer)].output = true;
    }
    graph_.check_segments("trace");  // numbers them
    for (const Windows::Window& w : windows_.leaves) {
      const auto& leaf = static_cast<const Leaf&>(*w.leaf);
      if (leaf.has_grad || !leaf.grad.defined()) continue;
      auto known = external_.find(leaf.grad.impl().storage.get());
      if (known == external_.end()) continue;
      graph_.buffers[size_t(known->second)].unread.push_back(span_of(leaf.grad.ref(), operand(leaf.grad).offset));
    }
    return std::move(graph_);
  }

 private:
  void note(GradientTarget& leaf, bool matters) {
    if (noted_.insert(&leaf).second)
      windows_.leaves.push_back({&leaf, static_cast<Leaf&>(leaf).has_grad, false, matters});
  }
  Operand operand(const Tensor& t) {
    const Ref<Storage>& storage = t.impl().storage;
    int64_t offset = static_cast<char*>(t.data()) - static_cast<char*>(storage->data);
    if (memory_.owns(storage->data)) return {traced_buffer(storage->data), offset};
    auto [it, fresh] = external_.try_emplace(storage.get(), int(graph_.buffers.size()));
    if (fresh) {
      Buffer b;
      b.bytes = storage->bytes;
      b.external = storage;
      b.holds = t.ref();
      b.holds.data = nullptr;
      graph_.buffers.push_back(b);
    }
    return {it->second, offset};
  }
  int traced_buffer(const void* p) {
    auto& [address, block] = memory_.block_of(p);
    auto [it, fresh] = traced_.try_emplace(address, int(graph_.buffers.size()));
    if (fresh) graph_.buffers.push_back({block.bytes, {}, block.category, block.range, block.holds});
    return it->second;
  }

  TracedMemory& memory_ = TracedMemory::instance();
  Graph graph_;
  std::unordered_map<const Storage*, int> external_;
  std::unordered_map<uint64_t, int> traced_;
  std::unordered_set<const GradientTarget*> noted_;
  Windows windows_;
};

void refuse_what_was_kept() {
  for (const auto& [address, block] : TracedMemory::instance().blocks())
    if (!block.released)
      fail_with(ErrorKind::usage,
                "a tensor of {} bytes made in {} is kept after the traced step, which has not computed it; return it "
                "from the step, or make it "
                "before (a leaf's gradient: run one eager step first)",
                block.bytes, block.range->path());
}

}  // namespace

bool Windows::hold() const {
  for (const Window& w : leaves)
    if (w.matters && static_cast<const Leaf&>(*w.leaf).has_grad != w.before) return false;
  return true;
}

void Windows::replayed() const {
  for (const Window& w : leaves) static_cast<Leaf&>(*w.leaf).has_grad = w.after;
}

bool Windows::release_gradients() const {
  bool any = false;
  for (const Window& w : leaves) {
    auto& leaf = static_cast<Leaf&>(*w.leaf);
    if (!leaf.release_grad || !leaf.grad.defined()) continue;
    bool real = !as_promise(leaf.grad.impl().storage);
    leaf.release_grad();
    any |= real && !leaf.grad.defined();
  }
  return any;
}

Graph trace(const Step& step, const std::vector<Tensor>& inputs, DeviceType device, Windows* windows) {
  check(!context().recorder, "a step that is being traced cannot trace another");
  TracedMemory::instance().clear();
  Tracer tracer(device);
  Graph graph;
  {
    Scoped<Recorder*> recording(context().recorder, &tracer);
    graph = tracer.finish(step(inputs));
    if (windows) *windows = tracer.windows();
  }
  refuse_what_was_kept();
  return graph;
}

}  // namespace sinter::compile
