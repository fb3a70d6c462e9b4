// Large GEMMs of a step on the CPU go to our own kernel, eager or compiled, folded into
// updates or not: the same bits.
#include "backend/workspace.h"
#include "core/folded_update.h"
#include "nn/transformer.h"
#include "ops/table.h"
#include "support/threads.h"
#include "support/values.h"
#include "train/workload.h"

namespace sinter {
namespace {

// Three sequences of 48 tokens: all GEMMs of layers are large, and their shapes no multiples of tiles.
const ModelConfig config{.d_model = 192, .d_ff = 224, .layers = 1, .heads = 4, .vocab = 300, .ctx = 48};

struct Trained {
  std::vector<double> losses;
  Tensor parameters;
};
Trained train(const char* dtype, std::optional<compile::CompileOptions> how) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.seed = 1;
  o.compiled = std::move(how);
  Trainer t(config, o, make_transformer);
  Trained r;
  for (uint64_t i = 0; i < 5; ++i) r.losses.push_back(t.step(random_batch(3, 48, 300, 100 + i, DeviceType::cpu), 1e-3));
  r.parameters = copy(t.parameters().master().detach());
  return r;
}

TEST(LargeProducts, EqualEagerBitForBit) {
  for (const char* dtype : {"fp32", "bf16"}) {
    Trained eager = train(dtype, {});
    for (int threads : {1, 2, 5}) {
      Threads t(threads);
      Trained compiled = train(dtype, compile::CompileOptions{});
      EXPECT_EQ(compiled.losses, eager.losses) << dtype << ", " << threads << " threads";
      EXPECT_TRUE(same_bits(compiled.parameters, eager.parameters)) << dtype << ", " << threads << " threads";
    }
  }
}

// Else the test above would not compare them.
TEST(LargeProducts, AreFoldedIntoUpdates) {
  RunConfig c;
  c.model = config, c.batch = 3, c.device = DeviceType::cpu, c.precision = precision_named("fp32");
  c.pass = Pass::step, c.mode = Mode::compiled;
  Workload work(c, DeviceType::cpu, make_transformer);
  work.run();
  int large = 0;
  for (const compile::Node& n : work.compilation()->executable->graph().nodes) {
    if (n.op != &ops::adamw_product) continue;
    const TensorRef &dy = n.call.in[folded_input(0, folded_dy)], &x = n.call.in[folded_input(0, folded_x)];
    large += is_packed(workspace::last_dim(dy), workspace::last_dim(x), workspace::rows(x));
  }
  EXPECT_EQ(large, 5) << "of q, k and v, the output, the gates, down and the head";
}

}  // namespace
}  // namespace sinter
