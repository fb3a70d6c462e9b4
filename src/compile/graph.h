// A whole step as a flat list of kernel calls over buffers: what tracing makes, passes change and an Executable runs.
//
// Note [Flat graph]: calls stand in the order in which they were made, which is a valid order to run them in. They
// share memory by buffer and offset, not by tensor: views cost nothing, writing in place and adding to a sum are
// ordinary calls. Who depends on whom follows from the bytes that calls read and write (Node::for_each_access).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "core/fused.h"
#include "core/owned_call.h"
#include "core/range.h"
#include "memory/caching_allocator.h"
#include "ops/dispatch.h"

namespace sinter::compile {

// The bytes from the first to the last element of a tensor that begins at `offset`.
struct Span {
  int64_t begin, end;
  bool overlaps(const Span& o) const { return begin < o.end && o.begin < end; }
  bool contains(const Span& o) const { return begin <= o.begin && o.end <= end; }
};
Span span_of(const TensorRef& t, int64_t offset);
// Whether two tensors of one buffer can share bytes: not when their spans do not, and not when they are
// different parts of one larger tensor.
bool overlap(const TensorRef& a, int64_t a_offset, const TensorRef& b, int64_t b_offset);

struct Buffer {
  int64_t bytes = 0;
  // Existed before the step: parameters, moments, inputs. Null: made in the step, given memory by the plan.
  Ref<Storage> external;
  MemoryCategory category = MemoryCategory::activation;
  const RangeNode* range = nullptr;  // where it was made
  TensorRef holds = {};              // its first tensor, to show; rank -1: scratch memory
  bool output = false;               // read after the step
  // Of existing memory, what nobody reads after the step: gradients of leaves that it has reset.
  std::vector<Span> unread = {};
  bool lasting = false;  // the executable's own from one step to the next, zero before the first; not in the arena
  int64_t offset = -1;   // by the plan, in the arena …
  int over = -1;         // … or in this existing buffer (Note [Over gradients] in plan.cpp)

  bool is_planned() const { return !external && !lasting; }
  bool is_unread(Span span) const;  // all of it, of one leaf or of several side by side
};

// Where an operand lies.
struct Operand {
  int buffer = -1;  // -1: there is none
  int64_t offset = 0;
};

// What lanes are for. Strips of naive attention have the main one and those from first_strip_lane on; host actions have
// one of their own: they run in their order.
enum Lane : int { main_lane, side_lane, communication_lane, copy_lane, first_strip_lane };
constexpr int strip_lanes = 4;
constexpr int max_lanes = first_strip_lane + strip_lanes - 1;  // of the device
constexpr int host_lane = max_lanes;
inline int strip_lane(int chain) {
  int strip = (chain - 1) % strip_lanes;
  return strip == 0 ? main_lane : first_strip_lane + strip - 1;
}
StreamRole stream_role(int lane);

struct Node {
  const OpDef* op = nullptr;
  const RangeNode* range = nullptr;  // where the call was made
  OwnedCall call;                    // pointers are not filled in: the operands say where they will point
  std::vector<Operand> in, out;      // of its inputs and outputs
  Operand workspace;
  Cost cost;
  double bytes = 0;  // that it must move at least

  // Note [Lanes]: calls of one lane run in their order; those of different lanes at the same time, but for `waits`:
  // calls of other lanes (earlier in the list) that must be over before this one begins. Running all of them one after
  // the other, as listed, is always right.
  int lane = main_lane;
  std::vector<int> waits;
  // Note [Segments]: host actions cut the list into segments, each captured as one where the device can.
  // No pass moves a call across one.
  std::shared_ptr<const HostAction> action = {};  // of a node that is one
  int segment = -1;  // host actions before it, when it was traced; -1: a pass made it, and has put it where it belongs
  bool is_host() const { return op->kind == OpKind::host; }
  bool is_communication() const { return op->kind == OpKind::communication; }

  int chain = 0;  // from 1 on: calls of different chains could run side by side if there are lanes for them

  void add_input(const Operand& o, const TensorRef& t) { in.push_back(o), call.add_input(t); }
  void add_output(const Operand& o, const TensorRef& t) { out.push_back(o), call.add_output(t); }
  void clear_inputs() { in.clear(), call.clear_inputs(); }
  void clear_outputs() { out.clear(), call.clear_outputs(); }

  // f(operand, its layout, reads, writes) for every operand but the workspace.
  template <class F> void for_each_access(F&& f) const {
    for (int i = 0; i < call.n_in; ++i) f(in[size_t(i)], call.in[i], true, bool(op->mutates >> i & 1));
    for (int j = 0; j < call.n_out; ++j) f(out[size_t(j)], call.out[j], call.accumulates(j), true);
  }
};

struct Graph {
  DeviceType device = DeviceType::cpu;
  DeviceInfo target;  // what passes ask about it; for meta, what it stands for
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<Operand> outputs;  // what the step returned …
  std::vector<TensorRef> output_refs;
  std::vector<std::shared_ptr<const FusedProgram>> programs = {};  // of fused calls
  int64_t arena_bytes = 0;                                         // by the plan
  // Calls of the first lane that may pass before the memory a call of another uses is taken for something else.
  int lane_slack = 0;
  bool in_one_segment(int first, int last) const;  // no host action is among these calls and those between them
  void check_segments(const char* pass);           // refuses a graph in which a pass has moved calls across one

  int64_t total_bytes() const;         // the arena and all existing memory that the step uses
  int64_t live_bytes_at_most() const;  // of the step's own buffers, at once
  int64_t bytes_kept_for(
      int call) const;  // of those that calls before it wrote, and that it, a later one or the caller reads
  // The existing storage a buffer lies in (null: the arena), and where.
  const Ref<Storage>& storage_of(const Buffer& b) const {
    return b.over >= 0 ? buffers[size_t(b.over)].external : b.external;
  }
  // Buffers with the same share it, from their base on.
  const void* memory_of(const Buffer& b) const {
    return b.lasting ? static_cast<const void*>(&b) : storage_of(b).get();
  }
  int64_t base_of(const Buffer& b) const { return b.is_planned() ? b.offset : 0; }
};

// What a pass did, in figures and in words.
struct Report {
  std::string pass;
  int64_t nodes_before = 0, nodes_after = 0;
  double bytes_before = 0, bytes_after = 0;  // moved at least, in all
  std::vector<std::string> lines;            // what it did where, for --explain
};

}  // namespace sinter::compile
