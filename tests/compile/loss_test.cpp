// Logits that become their gradient: the loss and the gradients are eager's, and what somebody else reads stays.
#include <cmath>

#include "autograd/tape.h"
#include "backend/device.h"
#include "backend/workspace.h"
#include "compile/compiled.h"
#include "ops/table.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

enum class Also { nothing, returns_logits, uses_loss, twice };

struct Outcome {
  Values loss, grad_x, grad_w;
  int joined = 0;
};

Outcome run(DeviceType device, DType type, int64_t vocabulary, Also also, bool compiled) {
  auto normal = [&](Dims dims, uint64_t stream) {
    Tensor t = empty(dims, DType::f32, DeviceType::cpu);
    fill_normal(t, 5, stream, 1, 3);
    Tensor l = to(cast(t, type), device);
    require_grad(l).grad = full(dims, NAN, type, device);
    return l;
  };
  Tensor x = normal({37, 24}, 1), w = normal({vocabulary, 24}, 2);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 37; ++i) ids.push_back(i * 7 % vocabulary);
  Tensor targets = from_vector(ids, {37}, device);
  auto step = [&](const auto&) {
    zero_grad(x), zero_grad(w);
    Tensor logits = matmul(x, w, false, true), loss = cross_entropy(logits, targets);
    if (also == Also::twice) loss = loss + cross_entropy(logits, targets) * 0.5;
    if (also == Also::uses_loss) loss = loss * loss;
    backward(loss);
    std::vector<Tensor> out{loss.detach()};
    if (also == Also::returns_logits) out.push_back(logits.detach());
    return out;
  };
  Outcome r;
  if (compiled) {
    compile::Compiled c(step, device);
    std::vector<Tensor> out;
    for (int i = 0; i < 3; ++i) out = c({});
    r.loss = to_vector(out[0]);
    for (const auto& n : c.compilation().executable->graph().nodes) r.joined += n.op == &ops::cross_entropy_in_place;
  } else {
    r.loss = to_vector(step(0)[0]);
  }
  r.grad_x = to_vector(grad_of(x)), r.grad_w = to_vector(grad_of(w));
  return r;
}

void expect_eagers(DeviceType device) {
  for (int64_t vocabulary : {1, 5, 64, 1000, 9001})
    for (DType type : {DType::f32, DType::bf16})
      for (Also also : {Also::nothing, Also::returns_logits, Also::uses_loss, Also::twice}) {
        Outcome eager = run(device, type, vocabulary, also, false), got = run(device, type, vocabulary, also, true);
        std::string what = fmt::format("vocabulary {}, {}, case {}", vocabulary, name_of(type), int(also));
        EXPECT_EQ(got.joined, also == Also::nothing ? 1 : 0) << what;
        if (device == DeviceType::cpu && type == DType::f32) {  // eager's bits
          EXPECT_EQ(got.loss, eager.loss) << what;
          EXPECT_EQ(got.grad_x, eager.grad_x) << what;
          EXPECT_EQ(got.grad_w, eager.grad_w) << what;
          continue;
        }
        double bound = type == DType::f32 ? 1e-6 : 4e-3;
        EXPECT_LT(normwise_error(got.loss, eager.loss), 1e-6) << what;
        if (vocabulary == 1) continue;  // gradients are 0
        EXPECT_LT(normwise_error(got.grad_x, eager.grad_x), bound) << what;
        EXPECT_LT(normwise_error(got.grad_w, eager.grad_w), bound) << what;
      }
}
TEST(LossInPlace, GivesWhatEagerGives) { expect_eagers(DeviceType::cpu); }
TEST(LossInPlaceGpu, GivesWhatEagerGives) {
  SINTER_REQUIRE_GPU();
  expect_eagers(DeviceType::cuda);
}

// The kernel alone, on logits of any width and row length, against the two it stands for.
void expect_both_kernels(DeviceType device) {
  Rng rng(41);
  for (int i = 0; i < 30; ++i)
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      int64_t rows = integer(rng, 1, 40), vocabulary = integer(rng, 1, i % 5 ? 300 : 40000), wider = integer(rng, 0, 9);
      Tensor wide = empty({rows, vocabulary + wider}, DType::f32, DeviceType::cpu);
      fill_normal(wide, 6, uint64_t(i), 1, 3);
      wide = to(cast(wide, type), device);
      Tensor logits = slice(wide, 1, 0, vocabulary);
      std::vector<int64_t> ids;
      for (int64_t r = 0; r < rows; ++r) ids.push_back(integer(rng, 0, vocabulary));
      Tensor targets = from_vector(ids, {rows}, device), dloss = full({}, 0.5, DType::f32, device);
      Tensor loss = full({}, NAN, DType::f32, device), one = copy(loss), lse = empty({rows}, DType::f32, device);
      Tensor expected = empty({rows, vocabulary}, type, device);
      auto call = [&](std::initializer_list<TensorRef> in, std::initializer_list<TensorRef> out) {
        OwnedCall c;
        for (const TensorRef& t : in) c.add_input(t);
        for (const TensorRef& t : out) c.add_output(t);
        c.stream = current_stream(device);
        c.workspace_bytes = workspace::cross_entropy(c, device);
        return c;
      };
      const KernelTable& kernels = backend_of(device).kernels();
      Tensor scratch = empty({8 * rows}, DType::u8, device);
      OwnedCall forward = call({logits.ref(), targets.ref()}, {loss.ref(), lse.ref()});
      OwnedCall in_place = call({logits.ref(), targets.ref(), dloss.ref()}, {one.ref()});
      forward.workspace = in_place.workspace = scratch.data();
      kernels.cross_entropy(forward);
      kernels.cross_entropy_backward(call({logits.ref(), targets.ref(), lse.ref(), dloss.ref()}, {expected.ref()}));
      Tensor beyond = copy(slice(wide, 1, vocabulary, wider));
      kernels.cross_entropy(in_place);
      std::string what = fmt::format("{} rows of {} and {} more, {}", rows, vocabulary, wider, name_of(type));
      EXPECT_TRUE(same_bits(one, loss)) << what;
      EXPECT_TRUE(same_bits(copy(logits), expected)) << what;
      EXPECT_TRUE(same_bits(beyond, copy(slice(wide, 1, vocabulary, wider)))) << what;
    }
}
TEST(CrossEntropyInPlace, IsBothKernels) { expect_both_kernels(DeviceType::cpu); }
TEST(CrossEntropyInPlaceGpu, IsBothKernels) {
  SINTER_REQUIRE_GPU();
  expect_both_kernels(DeviceType::cuda);
}

}  // namespace
}  // namespace sinter
