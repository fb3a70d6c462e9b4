// A model of one's own in the laboratory: attention and feed-forward side by side on one norm (as in GPT-J), with GELU.
// The program has every command of sinter, for this model:
//   my_model bench model --d-model 128 --d-ff 512 --layers 2 --heads 4 --ctx 64
#include <sinter/sinter.hpp>

using namespace sinter;

namespace {

struct ParallelBlock {
  RmsNorm norm;
  Attention attention;
  Linear up, down;

  ParallelBlock(Parameters& p, const std::string& name, const ModelConfig& c, const Rope& rope)
      : norm(p, name + ".norm", c.d_model, c.norm_eps),
        attention(p, name + ".attn", c, rope),
        up(p, name + ".up", c.d_model, c.d_ff),
        down(p, name + ".down", c.d_ff, c.d_model) {}

  Tensor operator()(const Tensor& x) const {
    Tensor y = norm(x);
    return x + (attention(y) + down(gelu(up(y))));
  }
};

class ParallelLM : public Model {
 public:
  ParallelLM(const ModelConfig& c, Parameters& p)
      : rope_(c, p.options()),
        embedding_(p.add({"embedding.weight", {c.vocab, c.d_model}, {Init::truncated_normal, 1}})) {
    for (int64_t i = 0; i < c.layers; ++i) {
      p.begin_unit("layers." + std::to_string(i));
      blocks_.emplace_back(p, "layers." + std::to_string(i), c, rope_);
    }
    p.begin_unit("head");
    norm_.emplace(p, "norm", c.d_model, c.norm_eps);
    head_.emplace(p, "head", c.d_model, c.vocab);
  }

  Tensor logits(const Tensor& tokens) const override {
    Tensor x = embedding(embedding_, tokens);
    for (const ParallelBlock& block : blocks_) x = block(x);
    return (*head_)((*norm_)(x));
  }

 private:
  Rope rope_;
  Tensor embedding_;
  std::vector<ParallelBlock> blocks_;
  std::optional<RmsNorm> norm_;
  std::optional<Linear> head_;
};

}  // namespace

int main(int argc, char** argv) {
  return lab_main(argc, argv, [](const ModelConfig& c, Parameters& p) { return std::make_unique<ParallelLM>(c, p); });
}
