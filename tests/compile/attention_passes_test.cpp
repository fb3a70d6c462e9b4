// Attention that is spelled out, compiled: in strips of rows (causal), or as the attention op (flash). Both give what
// eager gives; neither touches what it must not.
#include <cmath>
#include <set>

#include "autograd/tape.h"
#include "compile/compiled.h"
#include "compile/lane_order.h"
#include "compile/passes.h"
#include "ops/table.h"
#include "support/attention_reference.h"
#include "support/gpu.h"
#include "support/graph_checks.h"
#include "support/targets.h"

namespace sinter {
namespace {

using compile::Compiled;
using compile::CompileOptions;

int calls_of(const OpDef& op, const compile::Graph& g) {
  return int(std::count_if(g.nodes.begin(), g.nodes.end(), [&](const auto& n) { return n.op == &op; }));
}
CompileOptions without_flash() { return {{"flash"}}; }

// How a model may write it; q, k and v as in naive_attention.
using Spelling = std::function<Tensor(const AttentionShape&, const Tensor& q, const Tensor& k, const Tensor& v)>;
SoftmaxAttrs mask_of(const AttentionShape& s) { return {s.attrs.scale, s.attrs.causal, s.attrs.causal_offset}; }
Tensor plainly(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v) {
  int64_t rows = s.H / s.Hkv * s.Nq;
  Tensor scores = reshape(matmul(reshape(q, {s.B, s.Hkv, rows, s.D}), k, false, true), {s.B, s.H, s.Nq, s.Nk});
  Tensor p = softmax(scores, mask_of(s));
  return reshape(matmul(reshape(p, {s.B, s.Hkv, rows, s.Nk}), v), {s.B, s.H, s.Nq, s.D});
}
const std::vector<std::pair<const char*, Spelling>> spellings = {
    {"the scale in the softmax", plainly},
    {"scores scaled by a call of their own",
     [](const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v) {
       Tensor scores = matmul(q, k, false, true) * s.attrs.scale;
       return matmul(softmax(scores, {1, s.attrs.causal, s.attrs.causal_offset}), v);
     }},
    {"q scaled beforehand, k transposed by a view",
     [](const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v) {
       Tensor scores = matmul(q * s.attrs.scale, transpose(k, 2, 3));
       return matmul(softmax(scores, {1, s.attrs.causal, s.attrs.causal_offset}), v);
     }},
    {"heads as one dimension with the batch",
     [](const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v) {
       auto flat = [](const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), x.size(2), x.size(3)}); };
       Tensor p = softmax(matmul(flat(q), flat(k), false, true), mask_of(s));
       return reshape(matmul(p, flat(v)), {s.B, s.H, s.Nq, s.D});
     }},
};

struct Outcome {
  AttentionResults results;
  compile::Graph graph;  // compiled
};
// Forward and backward, eager where `how` is nothing.
Outcome run(const AttentionShape& s, const AttentionInputs& x, const Spelling& spell, const CompileOptions* how,
            bool grad = true) {
  DeviceType device = x.q.device();
  auto leaf = [&](const Tensor& t) {
    Tensor l = copy(t.detach());
    if (grad) require_grad(l).grad = full(t.dims(), NAN, t.dtype(), device);
    return l;
  };
  Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  auto step = [&](const auto&) {
    Tensor o = spell(s, q, k, v);
    if (grad) {
      for (const Tensor* t : {&q, &k, &v}) zero_grad(*t);
      backward(o, x.grad);
    }
    return std::vector{o.detach()};
  };
  Outcome r;
  Tensor o;
  if (how) {
    Compiled compiled(step, device, *how);
    for (int i = 0; i < 3; ++i) o = copy(compiled({})[0]);
    r.graph = compiled.compilation().executable->graph();
  } else {
    o = step(0)[0];
  }
  r.results.o = to_vector(o);
  if (grad)
    r.results.dq = to_vector(grad_of(q)), r.results.dk = to_vector(grad_of(k)), r.results.dv = to_vector(grad_of(v));
  return r;
}

// fp32 as near to eager as sums in another order are; 16 bits no worse than eager against fp64.
void expect_as_good_as_eager(const AttentionShape& s, const AttentionInputs& x, const Spelling& spell,
                             const Outcome& got, const std::string& what) {
  bool grad = !got.results.dq.empty();
  AttentionResults eager = run(s, x, spell, nullptr, grad).results;
  AttentionInputs on_cpu = on_device(x, DeviceType::cpu);
  AttentionResults exact = run(s, cast_to(on_cpu, DType::f64), spell, nullptr, grad).results;
  bool low = is_16bit(x.q.dtype());
  auto check = [&](const char* name, const Values& a, const Values& e, const Values& best) {
    if (best.empty()) return;
    double bound = low ? 1.1 * error(e, best) + 1e-6 : 1e-5;
    EXPECT_LE(error(a, low ? best : e), bound) << name << ": " << what;
  };
  check("o", got.results.o, eager.o, exact.o);
  check("dq", got.results.dq, eager.dq, exact.dq);
  check("dk", got.results.dk, eager.dk, exact.dk);
  check("dv", got.results.dv, eager.dv, exact.dv);
}

AttentionShape shape(int64_t B, int64_t H, int64_t Hkv, int64_t Nq, int64_t Nk, int64_t D, int64_t offset = 0,
                     bool causal = true) {
  AttentionShape s{B, H, Hkv, Nq, Nk, D, {}};
  s.attrs.scale = 1 / std::sqrt(double(D));
  s.attrs.causal = causal;
  s.attrs.causal_offset = offset;
  return s;
}

const std::vector<AttentionShape> long_shapes = {
    shape(1, 1, 1, 512, 512, 16),  shape(2, 2, 2, 640, 640, 24),      shape(1, 4, 2, 521, 521, 8),
    shape(1, 1, 1, 1027, 1027, 5), shape(2, 1, 1, 600, 700, 16, 100), shape(1, 3, 1, 520, 520, 8),
    shape(1, 2, 2, 513, 513, 9),   shape(1, 1, 1, 2048, 2048, 4),
};

AttentionShape random_long_shape(Rng& rng) {
  int64_t kv_heads = integer(rng, 1, 3), queries = integer(rng, 512, 900),
          more = integer(rng, 0, 2) ? 0 : integer(rng, 0, 300);
  return shape(integer(rng, 1, 3), kv_heads * integer(rng, 1, 3), kv_heads, queries, queries + more,
               integer(rng, 1, 33), more);
}

void expect_strips(DeviceType device) {
  Rng rng(11);
  std::vector<AttentionShape> shapes = long_shapes;
  for (int i = 0; i < 8; ++i) shapes.push_back(random_long_shape(rng));
  for (const AttentionShape& s : shapes)
    for (DType type : {DType::f32, DType::bf16})
      for (bool grad : {true, false}) {
        AttentionInputs x = on_device(random_inputs(s, rng, type), device);
        CompileOptions how = without_flash();
        Outcome r = run(s, x, plainly, &how, grad);
        // CUDA has calls that do all strips; their 16-bit kernels want whole pieces of 16 bytes. Other
        // strips of 16 bits are long there.
        bool on_cpu = device == DeviceType::cpu, joined = !on_cpu && (type == DType::f32 || s.D % 8 == 0);
        bool strips = !joined && (on_cpu || s.Nq >= 2048);
        EXPECT_EQ(calls_of(ops::attention_weights, r.graph), joined) << s.text();
        EXPECT_EQ(calls_of(ops::attention_weights_backward, r.graph), joined && grad) << s.text();
        EXPECT_EQ(calls_of(ops::softmax, r.graph) >= 2, strips) << s.text();
        EXPECT_EQ(calls_of(ops::softmax_backward, r.graph) >= 2, strips && grad) << s.text();
        expect_as_good_as_eager(s, x, plainly, r, s.text() + (type == DType::f32 ? " fp32" : " bf16"));
      }
}
TEST(CausalStrips, GiveWhatEagerGives) { expect_strips(DeviceType::cpu); }
TEST(CausalStripsGpu, GiveWhatEagerGives) {
  SINTER_REQUIRE_GPU();
  expect_strips(DeviceType::cuda);
}

TEST(CausalStrips, ReadOnlyWhatTheyWroteAndKeepTheirOrderInLanes) {
  for (const AttentionShape& s :
       {shape(2, 2, 2, 512, 512, 4), shape(1, 4, 2, 521, 521, 3), shape(1, 1, 1, 1027, 1027, 2)})
    for (DType type : {DType::f32, DType::f64}) {
      Rng rng(12);
      AttentionInputs x = random_inputs(s, rng, type);
      CompileOptions how = without_flash();
      expect_reads_of_written(run(s, x, plainly, &how).graph);
      for (const Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t).grad = empty(t->dims(), t->dtype(), DeviceType::cpu);
      compile::Graph g = compile::trace(
          [&](const auto&) {
            // Inner tensors, so that gradients have places that chains could share.
            Tensor o = plainly(s, x.q * 2, x.k * 2, x.v * 2);
            backward(o, x.grad);
            return std::vector{o.detach()};
          },
          {}, DeviceType::cpu);
      g.target = older_gpu();
      for (const compile::Pass& p : compile::all_passes())
        if (p.run != compile::passes::flash) p.run(g, {});
      compile::order_lanes(g);
      expect_ordered_lanes(g);
      if (type == DType::f32) continue;  // no strips, but calls that do all of them
      // Strips in different lanes do not wait for one another.
      std::vector<std::vector<bool>> before = order_of(g);
      for (const OpDef* op : {&ops::softmax, &ops::softmax_backward}) {
        int free = 0, pairs = 0;
        for (size_t i = 0; i < g.nodes.size(); ++i)
          for (size_t j = 0; j < i; ++j) {
            if (g.nodes[i].op != op || g.nodes[j].op != op || g.nodes[i].lane == g.nodes[j].lane) continue;
            ++pairs;
            free += !before[i][j];
          }
        EXPECT_GT(pairs, 0) << s.text();
        EXPECT_EQ(free, pairs) << s.text();
      }
    }
}

TEST(CausalStrips, DoLessWork) {
  AttentionShape s = shape(1, 1, 1, 2048, 2048, 8);
  Rng rng(13);
  AttentionInputs x = random_inputs(s, rng, DType::f32);
  CompileOptions how = without_flash(), uncut{{"flash", "causal"}};
  Outcome cut = run(s, x, plainly, &how), whole = run(s, x, plainly, &uncut);
  auto sum = [](const compile::Graph& g, auto&& of) {
    double total = 0;
    for (const auto& n : g.nodes) total += of(n);
    return total;
  };
  auto executed = [](const compile::Node& n) { return n.cost.executed(); };
  auto counted = [](const compile::Node& n) { return n.cost.matmul_flops; };
  auto moved = [](const compile::Node& n) { return n.bytes; };
  EXPECT_NEAR(sum(cut.graph, executed) / sum(whole.graph, executed), 9.0 / 16, 1e-6);
  EXPECT_NEAR(sum(cut.graph, counted) / sum(whole.graph, counted), 1, 1e-9)
      << "a model's FLOPs count attention in full";
  EXPECT_LT(sum(cut.graph, moved), 0.7 * sum(whole.graph, moved));
  EXPECT_LT(cut.graph.arena_bytes, whole.graph.arena_bytes * 6 / 10) << "no matrix of all scores, and ds over p";
}

// What is small, sees everything, or is seen by others stays whole.
TEST(CausalStrips, LeaveTheRestAlone) {
  Rng rng(14);
  CompileOptions how = without_flash();
  for (const AttentionShape& s :
       {shape(1, 1, 1, 256, 256, 8), shape(1, 1, 1, 512, 512, 8, 0, false), shape(1, 1, 1, 512, 512, 8, 512)}) {
    Outcome r = run(s, random_inputs(s, rng, DType::f32), plainly, &how);
    EXPECT_EQ(calls_of(ops::softmax, r.graph), 1) << s.text();
  }
  AttentionShape s = shape(1, 1, 1, 512, 512, 8);
  AttentionInputs x = random_inputs(s, rng, DType::f32);
  Compiled shown(
      [&](const auto& in) {
        Tensor p = softmax(matmul(in[0], in[1], false, true), mask_of(s));
        return std::vector{matmul(p, in[2]), p};
      },
      DeviceType::cpu, how);
  const std::vector<Tensor>& got = shown({x.q, x.k, x.v});
  EXPECT_EQ(calls_of(ops::softmax, shown.compilation().executable->graph()), 1);
  EXPECT_TRUE(same_bits(got[1], softmax(matmul(x.q, x.k, false, true), mask_of(s))));
}

void expect_flash(DeviceType device) {
  Rng rng(21);
  for (const auto& [name, spell] : spellings)
    for (int i = 0; i < 12; ++i) {
      AttentionShape s = random_attention(rng);
      if (i % 2) s.attrs.causal_offset = 0;
      s.H = s.Hkv;
      DType type = i % 3 == 0 ? DType::bf16 : DType::f32;
      if (s.attrs.causal && s.attrs.causal_offset < 0) s.attrs.causal_offset = 0;
      AttentionInputs x = on_device(random_inputs(s, rng, type), device);
      for (bool grad : {true, false}) {
        CompileOptions how;
        how.deterministic = true;
        Outcome r = run(s, x, spell, &how, grad);
        std::string what = fmt::format("{}, {}, {}", name, s.text(), name_of(type));
        EXPECT_EQ(calls_of(ops::attention, r.graph), 1) << what;
        EXPECT_EQ(calls_of(ops::attention_backward, r.graph), grad ? 1 : 0) << what;
        EXPECT_EQ(calls_of(ops::softmax, r.graph) + calls_of(ops::matmul, r.graph), 0) << what;
        if (s.Nq > 8 && s.Nk > 8) expect_as_good_as_eager(s, x, spell, r, what);
      }
    }
}
TEST(FlashForSpelledOut, GivesWhatEagerGives) { expect_flash(DeviceType::cpu); }
TEST(FlashForSpelledOutGpu, GivesWhatEagerGives) {
  SINTER_REQUIRE_GPU();
  expect_flash(DeviceType::cuda);
}

TEST(FlashForSpelledOut, SharesKeyHeads) {
  Rng rng(22);
  for (const AttentionShape& s : {shape(2, 6, 2, 70, 70, 16), shape(1, 4, 1, 33, 50, 8, 17)}) {
    AttentionInputs x = random_inputs(s, rng, DType::f32);
    CompileOptions how;
    Outcome r = run(s, x, plainly, &how);
    EXPECT_EQ(calls_of(ops::attention_backward, r.graph), 1) << s.text();
    expect_as_good_as_eager(s, x, plainly, r, s.text());
  }
}

// A mask of one's own, probabilities that are used otherwise, gradients that others add to.
TEST(FlashForSpelledOut, LeavesOtherAttentionAlone) {
  AttentionShape s = shape(1, 2, 2, 40, 40, 8);
  Rng rng(23);
  AttentionInputs x = random_inputs(s, rng, DType::f32);
  Tensor bias = random_tensor(rng, {40, 40}, DType::f32);
  const std::vector<std::pair<const char*, Spelling>> others = {
      {"a mask of one's own",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         return matmul(softmax(matmul(q, k, false, true) + bias, mask_of(a)), v);
       }},
      {"probabilities that are changed",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         return matmul(softmax(matmul(q, k, false, true), mask_of(a)) * bias, v);
       }},
      {"probabilities that something else reads",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         Tensor p = softmax(matmul(q, k, false, true), mask_of(a));
         return matmul(p, v) + sum(p, {3}, true);
       }},
      {"scores that something else reads",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         Tensor scores = matmul(q, k, false, true);
         return matmul(softmax(scores, mask_of(a)), v) + sum(scores, {3}, true);
       }},
      {"scores shifted",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         return matmul(softmax(affine(matmul(q, k, false, true), 1, 0.5), mask_of(a)), v);
       }},
      {"the transpose of the scores",
       [&](const auto& a, const Tensor& q, const Tensor& k, const Tensor& v) {
         return matmul(softmax(transpose(matmul(q, k, false, true), 2, 3), mask_of(a)), v);
       }},
  };
  for (const auto& [name, spell] : others) {
    CompileOptions how;
    Outcome r = run(s, x, spell, &how);
    EXPECT_EQ(calls_of(ops::attention, r.graph), 0) << name;
    expect_as_good_as_eager(s, x, spell, r, name);
  }
}

// Where only some of q, k and v want a gradient, or have other uses whose gradients are added.
void expect_wanted_gradients(const AttentionShape& s, const CompileOptions& how, const OpDef& replaced_by) {
  Rng rng(24);
  AttentionInputs x = random_inputs(s, rng, DType::f32);
  auto gradients = [&](bool compiled, int wanted, bool elsewhere) {
    std::vector<Tensor> leaves;
    for (const Tensor* t : {&x.q, &x.k, &x.v}) leaves.push_back(copy(t->detach()));
    for (int i = 0; i < 3; ++i)
      if (wanted >> i & 1) require_grad(leaves[size_t(i)]).grad = full(x.q.dims(), NAN, DType::f32, DeviceType::cpu);
    auto step = [&](const auto&) {
      for (const Tensor& l : leaves)
        if (leaf_of(l)) zero_grad(l);
      Tensor q = leaves[0] * 1.5, o = plainly(s, q, leaves[1], leaves[2]);
      if (elsewhere) o = o + q + leaves[1];
      backward(o, x.grad);
      return std::vector{o.detach()};
    };
    Compiled f(step, DeviceType::cpu, how);
    compiled ? void(f({})) : void(step(0));
    if (compiled && wanted != 4) {
      const compile::Graph& g = f.compilation().executable->graph();
      EXPECT_GE(calls_of(replaced_by, g), &replaced_by == &ops::softmax_backward ? 2 : 1) << wanted;
      expect_reads_of_written(g);
    }
    std::vector<Values> all;
    for (int i = 0; i < 3; ++i)
      if (wanted >> i & 1) all.push_back(to_vector(grad_of(leaves[size_t(i)])));
    return all;
  };
  for (int wanted : {1, 2, 3, 4, 5, 6, 7})
    for (bool elsewhere : {false, true}) {
      if (elsewhere && wanted != 7) continue;
      std::vector<Values> a = gradients(true, wanted, elsewhere), e = gradients(false, wanted, elsewhere);
      for (size_t i = 0; i < e.size(); ++i)
        EXPECT_LE(error(a[i], e[i]), 1e-5) << wanted << " " << elsewhere << " " << i;
    }
}
TEST(FlashForSpelledOut, GivesTheGradientsThatAreWanted) {
  expect_wanted_gradients(shape(2, 2, 2, 48, 48, 8), {}, ops::attention_backward);
}
TEST(CausalStrips, GiveTheGradientsThatAreWanted) {
  expect_wanted_gradients(shape(1, 2, 2, 520, 520, 4), without_flash(), ops::softmax_backward);
}

// Elements by their offsets.
std::set<int64_t> elements_of(const TensorRef& t, int64_t offset) {
  std::set<int64_t> all{offset};
  for (int d = 0; d < t.rank; ++d) {
    std::set<int64_t> more;
    for (int64_t at : all)
      for (int64_t i = 0; i < t.dims[d]; ++i) more.insert(at + i * t.strides[d]);
    all = std::move(more);
  }
  return all;
}

TEST(Overlap, IsFoundWhereThereIsAny) {
  Rng rng(31);
  int apart = 0;
  for (int i = 0; i < 5000; ++i) {
    int64_t dims[4] = {integer(rng, 1, 3), integer(rng, 1, 4), integer(rng, 1, 5), integer(rng, 1, 5)}, stride = 1;
    TensorRef whole;
    whole.rank = 4;
    for (int d = 3; d >= 0; --d)
      whole.dims[d] = dims[d], whole.strides[d] = stride, stride *= dims[d] + (d > 1 ? integer(rng, 0, 2) : 0);
    auto part = [&] {
      TensorRef t = whole;
      int64_t offset = integer(rng, 0, 8) ? 0 : 1;  // sometimes no part of it
      for (int d = 0; d < 4; ++d) {
        int64_t begin = integer(rng, 0, dims[d]);
        t.dims[d] = integer(rng, 1, dims[d] - begin + 1);
        offset += begin * t.strides[d];
      }
      if (t.dims[1] == dims[1] && integer(rng, 0, 2)) {  // the first two dimensions as one
        t.dims[1] *= t.dims[0];
        for (int d = 0; d < 3; ++d) t.dims[d] = t.dims[d + 1], t.strides[d] = t.strides[d + 1];
        t.rank = 3;
      }
      if (integer(rng, 0, 10) == 0) t.strides[integer(rng, 0, t.rank)] = integer(rng, 0, 9);  // or anything else
      return std::pair(t, offset);
    };
    auto [a, a_offset] = part();
    auto [b, b_offset] = part();
    std::set<int64_t> x = elements_of(a, a_offset), y = elements_of(b, b_offset);
    bool shared = std::any_of(x.begin(), x.end(), [&](int64_t e) { return y.count(e) > 0; });
    bool found = compile::overlap(a, 4 * a_offset, b, 4 * b_offset);
    ASSERT_TRUE(found || !shared) << i;
    apart += !found && compile::span_of(a, 4 * a_offset).overlaps(compile::span_of(b, 4 * b_offset));
  }
  EXPECT_GT(apart, 100) << "parts whose spans overlap, but that are known to be apart";
}

}  // namespace
}  // namespace sinter
