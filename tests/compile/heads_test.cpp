// Heads that stay in the rows of their projection: the numbers are eager's, and where somebody else reads
// rows or heads nothing is moved.
#include <cmath>

#include "autograd/tape.h"
#include "backend/device.h"
#include "compile/compiled.h"
#include "nn/attention.h"
#include "ops/table.h"
#include "support/generated.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

enum class Also { nothing, returns_rows, returns_keys, naive };

struct Shape {
  int64_t batch, positions, heads, kv_heads, head_dim;
  bool rotate;
};

struct Model {
  Shape s;
  Also also;
  Tensor x, w, cos, sin, grad_x, grad_w;

  Model(const Shape& shape, DType type, Also also, DeviceType device) : s(shape), also(also) {
    auto normal = [&](const Dims& dims, uint64_t stream, DType t) {
      Tensor n = empty(dims, DType::f32, DeviceType::cpu);
      fill_normal(n, 5, stream, 1, 3);
      return to(cast(n, t), device);
    };
    x = normal({s.batch, s.positions, 24}, 1, type);
    w = normal({(s.heads + 2 * s.kv_heads) * s.head_dim, 24}, 2, type);
    cos = normal({s.positions, s.head_dim / 2}, 3, DType::f32),
    sin = normal({s.positions, s.head_dim / 2}, 4, DType::f32);
    require_grad(x).grad = grad_x = full(x.dims(), NAN, type, device);
    require_grad(w).grad = grad_w = full(w.dims(), NAN, type, device);
  }
  std::vector<Tensor> operator()() {
    zero_grad(x), zero_grad(w);
    Tensor rows = linear(x, w);
    Heads h = split_heads(rows, cos, sin, {s.heads, s.kv_heads, s.rotate});
    AttentionAttrs attrs;
    attrs.scale = 0.3, attrs.causal = true, attrs.deterministic = true;
    Tensor o = also == Also::naive ? naive_attention(h.q, h.k, h.v, true) : attention(h.q, h.k, h.v, attrs);
    backward(sum(square(o)));
    std::vector<Tensor> out{o.detach()};
    if (also == Also::returns_rows) out.push_back(rows.detach());
    if (also == Also::returns_keys) out.push_back(h.k.detach());
    return out;
  }
  std::vector<Values> results(const std::vector<Tensor>& out) const {
    std::vector<Values> all;
    for (const Tensor& t : out) all.push_back(to_vector(t));
    all.push_back(to_vector(grad_x)), all.push_back(to_vector(grad_w));
    return all;
  }
};

int in_place(const compile::Graph& g) {
  int n = 0;
  for (const compile::Node& c : g.nodes)
    if (c.op == &ops::split_heads || c.op == &ops::split_heads_backward) n += c.in[0].buffer == c.out[0].buffer;
  return n;
}

constexpr Shape shapes[] = {{2, 9, 2, 2, 8, true}, {1, 70, 4, 1, 16, true}, {3, 1, 4, 2, 32, false}};

TEST(HeadsInPlace, GivesEagersBits) {
  for (const Shape& s : shapes)
    for (DType type : {DType::f32, DType::bf16}) {
      Model eager(s, type, Also::nothing, DeviceType::cpu), model(s, type, Also::nothing, DeviceType::cpu);
      std::vector<Values> expected = eager.results(eager());
      auto step = compiled_for_cuda([&](const auto&) { return model(); }, {}, {"fuse", "rows", "beta", "join"});
      EXPECT_EQ(in_place(step->graph()), 2) << "forward and backward";
      for (int i = 0; i < 2; ++i) step->run();
      EXPECT_EQ(model.results(step->outputs()), expected) << name_of(type) << ", " << s.positions << " positions";
    }
}

TEST(HeadsInPlace, LeavesWhatOthersRead) {
  auto moved = [](Also also, const Shape& s = shapes[0], DType type = DType::f32) {
    Model eager(s, type, also, DeviceType::cpu), model(s, type, also, DeviceType::cpu);
    std::vector<Values> expected = eager.results(eager());
    auto step = compiled_for_cuda([&](const auto&) { return model(); }, {},
                                  {"fuse", "rows", "beta", "join", "flash", "causal"});
    step->run();
    EXPECT_EQ(model.results(step->outputs()), expected);
    return in_place(step->graph());
  };
  EXPECT_EQ(moved(Also::nothing), 2);
  EXPECT_EQ(moved(Also::returns_rows), 1) << "rows are returned unrotated; their gradient is not";
  EXPECT_EQ(moved(Also::returns_keys), 1) << "keys are returned";
  EXPECT_EQ(moved(Also::naive), 0) << "products read heads that have memory of their own";
  Shape narrow{2, 5, 2, 1, 4, true};
  EXPECT_EQ(moved(Also::nothing, narrow, DType::f32), 2);
  EXPECT_EQ(moved(Also::nothing, narrow, DType::bf16), 0) << "a head's row is half a vector of 16 bytes";
}

TEST(HeadsInPlaceGpu, GivesEagersNumbers) {
  SINTER_REQUIRE_GPU();
  for (Shape s : {shapes[0], shapes[1], shapes[2], Shape{2, 200, 6, 3, 64, true}, Shape{2, 129, 4, 4, 128, true}})
    for (DType type : {DType::f32, DType::bf16}) {
      Model eager(s, type, Also::nothing, DeviceType::cuda), model(s, type, Also::nothing, DeviceType::cuda);
      std::vector<Values> expected = eager.results(eager());
      compile::Compiled step([&](const auto&) { return model(); }, DeviceType::cuda,
                             compile::CompileOptions{{"fuse", "rows", "beta", "join"}});
      std::vector<Tensor> out;
      for (int i = 0; i < 2; ++i) out = step({});
      EXPECT_EQ(in_place(step.compilation().executable->graph()), 2);
      EXPECT_EQ(model.results(out), expected) << name_of(type) << ", " << s.positions << " positions";
    }
}

// Two threads would rotate the halves of a pair, each reading the other's. The pass asks for no such thing.
TEST(HeadsInPlaceGpu, RefusesPartsOfVectors) {
  SINTER_REQUIRE_GPU();
  constexpr int64_t positions = 5, heads = 2, head_dim = 4, row = 3 * heads * head_dim;
  Tensor rows = zeros({1, positions, row}, DType::bf16, DeviceType::cuda);
  Tensor table = zeros({positions, head_dim / 2}, DType::f32, DeviceType::cuda);
  OwnedCall call;
  for (const Tensor* t : {&rows, &table, &table}) call.add_input(t->ref());
  for (int j = 0; j < 3; ++j) {
    Tensor part = slice(rows, 2, j * heads * head_dim, heads * head_dim);
    call.add_output(transpose(reshape(part, {1, positions, heads, head_dim}), 1, 2).ref());
  }
  call.attrs = Attrs::of(HeadsAttrs{heads, heads, true});
  call.stream = current_stream(DeviceType::cuda);
  auto run = [&] { backend_of(DeviceType::cuda).kernels().split_heads(call); };
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, run), {"split_heads", "in place", "16 bytes"}));
}

}  // namespace
}  // namespace sinter
