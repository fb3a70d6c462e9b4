// A model of one's own that spells attention out: compiled it gets flash attention, unless naive is asked for by name.
#include "nn/layers.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "support/gpu.h"
#include "support/values.h"
#include "train/workload.h"

namespace sinter {
namespace {

class SpelledOut : public Model {
 public:
  SpelledOut(const ModelConfig& c, Parameters& p)
      : heads_(c.heads), embedding_(p.add({"embedding.weight", {c.vocab, c.d_model}, {Init::truncated_normal, 1}})) {
    p.begin_unit("block");
    for (const char* name : {"q", "k", "v", "o"}) linears_.emplace_back(p, name, c.d_model, c.d_model);
    p.begin_unit("head");
    head_.emplace(p, "head", c.d_model, c.vocab);
  }

  Tensor logits(const Tensor& tokens) const override {
    Tensor x = embedding(embedding_, tokens);
    int64_t B = x.size(0), T = x.size(1), d = x.size(2), D = d / heads_;
    auto heads = [&](int i) { return transpose(reshape(linears_[size_t(i)](x), {B, T, heads_, D}), 1, 2); };
    Tensor scores = matmul(heads(0), heads(1), false, true) * (1 / std::sqrt(double(D)));
    Tensor p = softmax(scores, {1, true, 0});
    Tensor o = reshape(transpose(matmul(p, heads(2)), 1, 2), {B, T, d});
    return (*head_)(x + linears_[3](o));
  }

 private:
  int64_t heads_;
  Tensor embedding_;
  std::vector<Linear> linears_;
  std::optional<Linear> head_;
};
std::unique_ptr<Model> make(const ModelConfig& c, Parameters& p) { return std::make_unique<SpelledOut>(c, p); }

struct Outcome {
  std::vector<double> losses;
  int attention = 0, softmax = 0;
};
Outcome train(DeviceType device, const char* dtype, Mode mode, AttentionKind kind, int64_t ctx) {
  RunConfig c;
  c.model.d_model = 32, c.model.d_ff = 32, c.model.layers = 1, c.model.heads = 2, c.model.vocab = 97, c.model.ctx = ctx;
  c.model.attention = {kind, true, 0};
  c.batch = 2, c.device = device, c.precision = precision_named(dtype), c.mode = mode, c.adamw.learning_rate = 1e-3;
  Workload work(c, device, make);
  Outcome out;
  for (int i = 0; i < 10; ++i) {
    work.run();
    out.losses.push_back(item(work.loss()));
  }
  if (work.compilation())
    for (const compile::Node& n : work.compilation()->executable->graph().nodes) {
      out.attention += n.op == &ops::attention || n.op == &ops::attention_backward;
      out.softmax += n.op == &ops::softmax || n.op == &ops::softmax_backward;
    }
  return out;
}

void expect_flash_unless_naive(DeviceType device) {
  for (const char* dtype : {"fp32", "bf16"})
    for (int64_t ctx : {48, 512}) {
      Outcome eager = train(device, dtype, Mode::eager, AttentionKind::flash, ctx);
      for (AttentionKind kind : {AttentionKind::flash, AttentionKind::naive}) {
        Outcome compiled = train(device, dtype, Mode::compiled, kind, ctx);
        bool naive = kind == AttentionKind::naive;
        EXPECT_EQ(compiled.attention, naive ? 0 : 2) << dtype << " " << ctx;
        if (!naive) {
          EXPECT_EQ(compiled.softmax, 0) << dtype << " " << ctx;
        }
        for (size_t i = 0; i < eager.losses.size(); ++i)
          EXPECT_NEAR(compiled.losses[i], eager.losses[i], dtype == std::string("fp32") ? 1e-5 : 1e-3)
              << dtype << " " << ctx << " " << name_of(kind) << ", step " << i;
      }
      EXPECT_LT(eager.losses.back(), eager.losses.front());
    }
}
TEST(OwnAttention, BecomesFlashUnlessNaiveIsAskedFor) { expect_flash_unless_naive(DeviceType::cpu); }
TEST(OwnAttentionGpu, BecomesFlashUnlessNaiveIsAskedFor) {
  SINTER_REQUIRE_GPU();
  expect_flash_unless_naive(DeviceType::cuda);
}

}  // namespace
}  // namespace sinter
