#include "support/graph_checks.h"

#include <algorithm>
#include <map>

#include "ops/table.h"

namespace sinter {
namespace {

// f(offset in bytes, index of the last two dimensions) for every element.
template <class F> void for_each_element(const TensorRef& t, int64_t offset, F&& f) {
  int64_t n = 1, size = size_of(t.dtype);
  for (int d = 0; d < t.rank; ++d) n *= t.dims[d];
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0, index[max_rank] = {};
    for (int d = t.rank - 1; d >= 0; --d) {
      index[d] = rest % t.dims[d];
      rest /= t.dims[d];
      at += index[d] * t.strides[d];
    }
    f(offset + at * size, t.rank > 1 ? index[t.rank - 2] : 0, t.rank > 0 ? index[t.rank - 1] : 0);
  }
}

struct Touch {
  const void* memory;
  int64_t begin, end;
  bool writes;
  int buffer;  // -1: scratch memory
  int64_t offset;
  const TensorRef* tensor;
};

std::vector<Touch> touches(const compile::Graph& g, const compile::Node& node) {
  std::vector<Touch> all;
  auto add = [&](int buffer, int64_t begin, int64_t end, bool writes, int64_t offset, const TensorRef* t) {
    const compile::Buffer& b = g.buffers[size_t(buffer)];
    int64_t base = g.base_of(b);
    all.push_back({g.memory_of(b), base + begin, base + end, writes, t ? buffer : -1, offset, t});
  };
  node.for_each_access([&](const compile::Operand& x, const TensorRef& r, bool, bool writes) {
    compile::Span s = compile::span_of(r, x.offset);
    add(x.buffer, s.begin, s.end, writes, x.offset, &r);
  });
  if (node.workspace.buffer >= 0)
    add(node.workspace.buffer, 0, g.buffers[size_t(node.workspace.buffer)].bytes, true, 0, nullptr);
  return all;
}

bool conflict(const Touch& a, const Touch& b) {
  if (!(a.writes || b.writes) || a.memory != b.memory || a.begin >= b.end || b.begin >= a.end) return false;
  return a.buffer < 0 || a.buffer != b.buffer || compile::overlap(*a.tensor, a.offset, *b.tensor, b.offset);
}

}  // namespace

std::vector<std::vector<bool>> order_of(const compile::Graph& g) {
  size_t n = g.nodes.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  int last[compile::max_lanes];
  std::fill_n(last, compile::max_lanes, -1);
  for (size_t i = 0; i < n; ++i) {
    auto follows = [&](int j) {
      before[i][size_t(j)] = true;
      for (size_t x = 0; x < n; ++x) before[i][x] = before[i][x] || before[size_t(j)][x];
    };
    int lane = g.nodes[i].lane;
    if (last[lane] >= 0) follows(last[lane]);
    for (int w : g.nodes[i].waits) {
      EXPECT_LT(w, int(i));
      follows(w);
    }
    last[lane] = int(i);
  }
  return before;
}

void expect_ordered_lanes(const compile::Graph& g) {
  size_t n = g.nodes.size();
  std::vector<std::vector<bool>> before = order_of(g);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) {
      if (before[i][j]) continue;
      for (const Touch& a : touches(g, g.nodes[i]))
        for (const Touch& b : touches(g, g.nodes[j]))
          ASSERT_FALSE(conflict(a, b)) << g.nodes[j].range->path() << " and " << g.nodes[i].range->path();
    }
}

void expect_reads_of_written(const compile::Graph& g) {
  std::map<int, std::vector<bool>> written;
  for (const auto& n : g.nodes) {
    bool causal = false;
    int64_t sees = 0;
    if (n.op == &ops::softmax || n.op == &ops::softmax_backward) {
      const auto& a = n.call.attrs.as<SoftmaxAttrs>();
      causal = a.causal, sees = a.causal_offset + 1;
    }
    int64_t missing = 0;
    n.for_each_access([&](const compile::Operand& o, const TensorRef& t, bool reads, bool) {
      const compile::Buffer& b = g.buffers[size_t(o.buffer)];
      if (b.external || !reads || n.op == &ops::fill) return;  // its input is what it fills
      std::vector<bool>& map = written[o.buffer];
      map.resize(size_t(b.bytes));
      for_each_element(t, o.offset, [&](int64_t at, int64_t row, int64_t column) {
        if (!causal || column < row + sees) missing += !map[size_t(at)];
      });
    });
    ASSERT_EQ(missing, 0) << "elements read before they are written, by " << n.op->name << " in " << n.range->path();
    n.for_each_access([&](const compile::Operand& o, const TensorRef& t, bool, bool writes) {
      const compile::Buffer& b = g.buffers[size_t(o.buffer)];
      if (b.external || !writes) return;
      std::vector<bool>& map = written[o.buffer];
      map.resize(size_t(b.bytes));
      for_each_element(t, o.offset, [&](int64_t at, int64_t, int64_t) {
        ASSERT_LT(at, b.bytes);
        map[size_t(at)] = true;
      });
    });
  }
}

}  // namespace sinter
