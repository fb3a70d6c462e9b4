// Named ranges: phase × module path × op, e.g. step/backward/layers.7/attn/softmax. Entered once and read by everything
// that wants to say where something happened: memory events, error messages, NVTX, the profiler.
//
// Note [Ranges are a tree]: a place is a node that lives for ever, so that "where" is one number, the node's id, which
// memory events, device activity and traces carry. Entering a range finds the child of that name; only a new one takes
// a lock. Siblings lie in the order in which they were first entered and are looked through from the last hit on, so
// that layer after layer is found at once, however many there are.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/place.h"

namespace sinter {

enum class RangeKind : uint8_t { module, phase, op };  // phases: forward, backward, optimizer, …

struct RangeNode {
  const std::string name;
  const RangeNode* const parent;  // null for the root, which has no name and id 0
  const uint32_t id;
  const RangeKind kind;
  const Place where;  // first entered here

  std::string path() const;        // "step/forward/layers.3/attn"
  const RangeNode* phase() const;  // the innermost phase it lies in, or null

 private:
  friend struct RangeTree;
  RangeNode(const std::string& name, const RangeNode* parent, uint32_t id, RangeKind kind, Place where)
      : name(name), parent(parent), id(id), kind(kind), where(where) {}
  mutable std::atomic<const RangeNode*> first_child = nullptr, last_hit = nullptr;
  mutable std::atomic<const RangeNode*> next_sibling = nullptr;
  mutable const RangeNode* last_child = nullptr;
};
const RangeNode& range_of(uint32_t id);

class Range {
 public:
  explicit Range(const char* name, RangeKind kind = RangeKind::module, Place where = Place::here());
  explicit Range(const std::string& name, RangeKind kind = RangeKind::module, Place where = Place::here())
      : Range(name.c_str(), kind, where) {}
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  static const RangeNode& current();
  static std::string path() { return current().path(); }
};

// Backward visits the modules that forward went through: follow(f) goes to the module path of `f` (without its phase
// and op), below the range in which this object was made. What is common to the old place and the new one is not left.
class RangeFollower {
 public:
  RangeFollower();
  ~RangeFollower();
  RangeFollower(const RangeFollower&) = delete;
  RangeFollower& operator=(const RangeFollower&) = delete;
  void follow(const RangeNode& forward);
  void go_to(const RangeNode& place);  // exactly there: a replayed call goes where it was recorded

 private:
  const RangeNode& base_;
  const RangeNode* last_ = nullptr;
};

// Hears of every range that this process enters and leaves, for as long as it lives. Made and destroyed while no other
// thread enters ranges.
class RangeListener {
 public:
  RangeListener();
  virtual ~RangeListener();
  RangeListener(const RangeListener&) = delete;
  RangeListener& operator=(const RangeListener&) = delete;
  virtual void entered(const RangeNode& range) = 0;
  virtual void left(const RangeNode& range) = 0;
};

}  // namespace sinter
