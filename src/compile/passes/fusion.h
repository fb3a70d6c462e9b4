// Making one call of several: what the passes `fuse` and `rows` share.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "compile/passes.h"

namespace sinter::compile {

// A call that works element by element on contiguous floats of one size, and single numbers, which the
// target's fused kernels can compute.
bool is_pointwise(const Graph& graph, const Node& n);

// A tensor, and how a program sees it.
struct Place {
  Operand operand;
  TensorRef ref;
  Varies varies = Varies::element;
  bool is_sum = false;  // read only to be added to: counted as written, as in every call
};

// A growing group of calls: their program, and where its values lie. Values are inputs from 0 up, steps from −1 down.
class FusionGroup {
 public:
  // Adds a call's steps by read, step and write; false if it cannot.
  using Expand = bool (*)(FusionGroup&, const Node&);

  explicit FusionGroup(const Graph& graph) : graph_(graph) {}

  const std::vector<size_t>& members() const { return members_; }
  // False, and nothing changed, if the call cannot be taken in.
  bool take(size_t index, Expand expand);
  // The fused call; its op is null if it would store too much. `stored` says which written
  // places somebody outside needs.
  Node finish(Graph& graph, const std::function<bool(const Operand&)>& stored) const;

  int read(const Place& p);
  int read_sum(Place p) { return p.is_sum = true, read(p); }
  int step(const FusedStep& s);
  int map(PointwiseFn fn, int a, int b = 0) { return step({fn, {a, b, a}, {}}); }
  int constant(double x) { return step({PointwiseFn::copy, {}, {0, x}, StepKind::constant}); }
  void write(const Place& p, int value, bool accumulate);
  // Says that the program is one of rows of this length.
  void need_rows(int64_t length);

  bool has_rows() const { return row_length_ > 0; }

 private:
  using Key = std::tuple<int, int64_t, int, int64_t,
                         int64_t>;  // buffer, offset, type, elements, elements from the first to the last
  static Key key_of(const Place& p);
  bool overlaps_partly(const Place& p) const;
  int resolved(int value) const { return value < 0 ? int(state_.inputs.size()) + (-1 - value) : value; }

  // What take() puts back if it fails.
  struct State {
    std::vector<Place> inputs, written;
    std::vector<FusedStep> steps;
    std::map<Key, int> value_at;
    uint32_t accumulate_written = 0;  // bit per written place: a sum over all rows that is added to what is there
    Operand workspace;
    int64_t workspace_bytes = 0;
  };
  const Graph& graph_;
  State state_;
  std::vector<size_t> members_;
  int64_t elements_ = 0, row_length_ = 0;
  bool linked_ = false, failed_ = false;
};

// Looks for groups from first to last: calls for which `expansion` gives something, in their order, each
// linked to one taken before. They run where the last of them stood: the others move down to it, past
// calls that touch nothing of theirs.
Report fuse_groups(Graph& graph, FusionGroup::Expand (*expansion)(const Graph&, const Node&),
                   bool (*worthwhile)(const FusionGroup&));

bool expand_pointwise(FusionGroup& group, const Node& n);

}  // namespace sinter::compile
