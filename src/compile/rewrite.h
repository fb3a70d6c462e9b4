// What passes need that put other calls in the place of some.
#pragma once
#include "compile/graph.h"

namespace sinter::compile {

// A tensor and where it lies.
struct Placed {
  Operand at;
  TensorRef ref;

  // Indices [begin, begin + length) of a dimension.
  Placed part(int dim, int64_t begin, int64_t length) const {
    Placed p = *this;
    p.at.offset += begin * ref.strides[dim] * size_of(ref.dtype);
    p.ref.dims[dim] = length;
    return p;
  }
};

inline Placed input(const Node& n, int i) { return {n.in[i], n.call.in[i]}; }
inline Placed output(const Node& n, int i = 0) { return {n.out[i], n.call.out[i]}; }

// The same shape, and the same strides where a dimension has more than one element.
bool same_layout(const TensorRef& a, const TensorRef& b);
// … in the same memory, of the same type.
bool same_place(const Placed& a, const Placed& b);

// Whether a call in [from, to) writes into it, or touches it at all.
bool is_written(const Graph& graph, const Placed& tensor, int from, int to);
bool is_touched(const Graph& graph, const Placed& tensor, int from, int to);

// Whether kernels made of Hopper's instructions can take these: the GPU has them, and every row
// is in whole pieces of 16 bytes.
bool fits_hopper(const Graph& graph, std::initializer_list<Placed> tensors);

// A new tensor of the step's own. Rows may be longer than what they hold: `row` elements apart, if it is not 0.
Placed new_tensor(Graph& graph, const Dims& dims, DType dtype, MemoryCategory category, const RangeNode* range,
                  int64_t row = 0);

// A call of the op; gives it scratch memory by the op's rule, and counts its bytes. The
// cost is left to whoever knows it.
Node new_call(Graph& graph, const OpDef& op, const RangeNode* range, const Attrs& attrs, const std::vector<Placed>& in,
              const std::vector<Placed>& out, MathMode math = MathMode::full, uint32_t accumulate = 0);

// A place of that name under all of these.
const RangeNode* range_above(const std::vector<const RangeNode*>& ranges, const char* name);

// Calls to put in the place of others, and when all are known, does it.
class Replacement {
 public:
  explicit Replacement(Graph& graph)
      : graph_(graph), gone_(graph.nodes.size()), instead_(graph.nodes.size()), after_(graph.nodes.size()) {}
  void drop(const std::vector<int>& calls) {
    for (int c : calls) gone_[size_t(c)] = true;
  }
  // Where call `at` stands, after what was put there before, or before it.
  void put(int at, Node node) { instead_[size_t(at)].push_back(std::move(node)); }
  void put_first(int at, Node node) { instead_[size_t(at)].insert(instead_[size_t(at)].begin(), std::move(node)); }
  void put_after(int at, Node node) { after_[size_t(at)].push_back(std::move(node)); }
  void apply();

 private:
  Graph& graph_;
  std::vector<bool> gone_;
  std::vector<std::vector<Node>> instead_, after_;
};

}  // namespace sinter::compile
