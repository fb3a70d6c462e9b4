#include "core/range.h"

#include <algorithm>
#include <mutex>

#include "core/error.h"

namespace sinter {

struct RangeTree {
  std::mutex mutex;
  std::vector<const RangeNode*> nodes;  // by id
  const RangeNode* root;

  RangeTree() : root(new RangeNode("", nullptr, 0, RangeKind::module, {})) { nodes.push_back(root); }

  static RangeTree& instance() {
    static auto* tree = new RangeTree;  // never destroyed: memory may be given back after main
    return *tree;
  }

  static const RangeNode* find(const RangeNode& of, const char* name, RangeKind kind) {
    auto search = [&](const RangeNode* n, const RangeNode* end) -> const RangeNode* {
      for (; n != end; n = n->next_sibling.load(std::memory_order_acquire))
        if (n->kind == kind && n->name == name) return n;
      return nullptr;
    };
    const RangeNode* last = of.last_hit.load(std::memory_order_acquire);
    const RangeNode* found = last ? search(last, nullptr) : nullptr;
    if (!found) found = search(of.first_child.load(std::memory_order_acquire), last);
    if (found) of.last_hit.store(found, std::memory_order_release);
    return found;
  }
  const RangeNode& child(const RangeNode& of, const char* name, RangeKind kind, Place where) {
    if (const RangeNode* n = find(of, name, kind)) return *n;
    std::lock_guard lock(mutex);
    if (const RangeNode* n = find(of, name, kind)) return *n;
    auto* made = new RangeNode(name, &of, uint32_t(nodes.size()), kind, where);
    nodes.push_back(made);
    auto& link = of.last_child ? of.last_child->next_sibling : of.first_child;
    link.store(made, std::memory_order_release);
    of.last_child = made;
    return *made;
  }
};

namespace {

thread_local const RangeNode* here = nullptr;  // null: the root
std::vector<RangeListener*> listeners;
std::atomic<bool> anyone_listens = false;

void enter(const RangeNode& n) {
  here = &n;
  if (anyone_listens.load(std::memory_order_relaxed)) [[unlikely]]
    for (RangeListener* l : listeners) l->entered(n);
}
void leave() {
  if (anyone_listens.load(std::memory_order_relaxed)) [[unlikely]]
    for (RangeListener* l : listeners) l->left(*here);
  here = here->parent;
}

int depth_of(const RangeNode* n) {
  int depth = 0;
  for (; n->parent; n = n->parent) ++depth;
  return depth;
}

void enter_down_to(const RangeNode* target, const RangeNode* from) {
  if (target == from) return;
  enter_down_to(target->parent, from);
  enter(*target);
}

void move_to(const RangeNode* target) {
  const RangeNode *a = &Range::current(), *b = target;
  int da = depth_of(a), db = depth_of(b);
  for (; da > db; --da) a = a->parent;
  for (; db > da; --db) b = b->parent;
  while (a != b) a = a->parent, b = b->parent;
  while (here != a) leave();
  enter_down_to(target, a);
}

// The same modules below another place.
const RangeNode& below(const RangeNode& base, const RangeNode& n) {
  if (n.kind == RangeKind::phase || !n.parent) return base;
  const RangeNode& above = below(base, *n.parent);
  return n.kind == RangeKind::op ? above : RangeTree::instance().child(above, n.name.c_str(), n.kind, n.where);
}

}  // namespace

std::string RangeNode::path() const {
  if (!parent) return "";
  std::string before = parent->path();
  return before.empty() ? name : before + "/" + name;
}

const RangeNode* RangeNode::phase() const {
  const RangeNode* n = this;
  while (n && n->kind != RangeKind::phase) n = n->parent;
  return n;
}

const RangeNode& range_of(uint32_t id) {
  RangeTree& tree = RangeTree::instance();
  std::lock_guard lock(tree.mutex);
  return *tree.nodes[id];
}

const RangeNode& Range::current() { return here ? *here : *(here = RangeTree::instance().root); }

Range::Range(const char* name, RangeKind kind, Place where) {
  enter(RangeTree::instance().child(current(), name, kind, where));
}
Range::~Range() { leave(); }

RangeFollower::RangeFollower() : base_(Range::current()) {}
RangeFollower::~RangeFollower() { move_to(&base_); }
void RangeFollower::follow(const RangeNode& forward) {
  if (last_ == &forward) return;
  last_ = &forward;
  move_to(&below(base_, forward));
}

void RangeFollower::go_to(const RangeNode& place) {
  last_ = nullptr;
  if (&place != here) move_to(&place);
}

RangeListener::RangeListener() {
  listeners.push_back(this);
  anyone_listens = true;
}
RangeListener::~RangeListener() {
  std::erase(listeners, this);
  anyone_listens = !listeners.empty();
}

void fail(ErrorKind kind, const std::string& message) {
  std::string where = Range::path();
  throw Error(kind, where.empty() ? message : message + " (in " + where + ")");
}

}  // namespace sinter
