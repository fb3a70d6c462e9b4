// What the laboratory asks of a model: plain code from token ids to logits. Parallelism, precision, profiling and
// compilation happen around it.
#pragma once
#include <functional>
#include <memory>

#include "nn/attention.h"
#include "nn/key_value_cache.h"
#include "nn/parameters.h"

namespace sinter {

// Llama 3's way to more positions than a model was first trained with: slow rotations are slowed down by `factor`, fast
// ones stay, and those between are blended. Wavelengths are compared with `original_ctx` positions.
struct RopeScaling {
  double factor = 1, low_frequency_factor = 1, high_frequency_factor = 4;  // factor 1: none
  int64_t original_ctx = 8192;
  bool on() const { return factor != 1; }
};
RopeScaling rope_scaling_of(const std::string& text);  // "8,1,4,8192", or "none": --rope-scaling
std::string text_of(const RopeScaling& scaling);

struct ModelConfig {
  std::string name = "custom";  // of a known size, or "custom"
  int64_t d_model = 0, d_ff = 0, layers = 0, heads = 0;
  int64_t vocab = 10000, ctx = 256;
  int64_t kv_heads = 0;  // shared evenly by the heads (grouped-query attention); 0: one for each head
  double rope_theta = 10000, norm_eps = 1e-5;
  RopeScaling rope_scaling = {};
  bool tied_embeddings = false;  // the head's weight is the embedding's: one parameter, used twice
  AttentionOptions attention = {};

  int64_t head_dim() const { return d_model / heads; }
  int64_t key_value_heads() const { return kv_heads ? kv_heads : heads; }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Tensor logits(const Tensor& tokens) const = 0;  // (batch, ctx) ids -> (batch, ctx, vocab)
  // The same for tokens that follow those the cache has seen, which then has seen these too; of the last `wanted`
  // positions alone. Without a tape. A model that cannot do that is refused.
  virtual Tensor logits_after(KeyValueCache& cache, const Tensor& tokens, int64_t wanted) const;
};

// Declares its parameters (which are allocated afterwards) and returns the model.
using MakeModel = std::function<std::unique_ptr<Model>(const ModelConfig&, Parameters&)>;

const std::vector<ModelConfig>& known_sizes();           // tiny, mini, small, medium, large, xl, 2.7B
const ModelConfig& known_size(const std::string& name);  // refuses others by listing what there is
void validate(const ModelConfig& config);                // refuses what cannot be built, with the reason

}  // namespace sinter
