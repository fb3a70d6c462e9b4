#include "nn/key_value_cache.h"

#include "core/range.h"
#include "nn/model.h"
#include "ops/ops.h"

namespace sinter {

LayerCache::LayerCache(const Dims& dims, DType dtype, DeviceType device)
    : k_(empty(dims, dtype, device)), v_(empty(dims, dtype, device)) {}

std::pair<Tensor, Tensor> LayerCache::append(const Tensor& k, const Tensor& v) {
  int64_t n = k.size(2), all = length_ + n;
  copy_into(slice(k_, 2, length_, n), k);
  copy_into(slice(v_, 2, length_, n), v);
  length_ = all;
  return {slice(k_, 2, 0, all), slice(v_, 2, 0, all)};
}

void LayerCache::truncate(int64_t length) {
  check(length >= 0 && length <= length_, "a key-value cache of {} positions cannot be cut to {}", length_, length);
  length_ = length;
}

KeyValueCache::KeyValueCache(const ModelConfig& c, int64_t batch, int64_t capacity, DType dtype, DeviceType device)
    : batch_(batch), capacity_(capacity) {
  check(batch > 0, "a key-value cache is for at least 1 sequence, not {}", batch);
  check(capacity > 0 && capacity <= c.ctx,
        "a key-value cache of {} positions: the model has 1 to {}; use fewer, or a larger --ctx", capacity, c.ctx);
  Range range("cache");
  for (int64_t i = 0; i < c.layers; ++i)
    layers.emplace_back(Dims{batch, c.key_value_heads(), capacity, c.head_dim()}, dtype, device);
}

void KeyValueCache::check_room(const Tensor& tokens) const {
  refuse_while_tracing("a key-value cache");
  check(!context().grad_enabled, "a key-value cache has no gradients: use it under NoGrad");
  check(tokens.rank() == 2 && tokens.size(0) == batch_, "the key-value cache is for {} sequences, not tokens {}",
        batch_, tokens.dims());
  check(tokens.size(1) <= capacity_ - length(), "the key-value cache holds {} of {} positions: {} more do not fit",
        length(), capacity_, tokens.size(1));
}

void KeyValueCache::truncate(int64_t length) {
  for (LayerCache& layer : layers) layer.truncate(length);
}

}  // namespace sinter
