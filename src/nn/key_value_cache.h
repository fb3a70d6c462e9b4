// What attention has computed of the tokens so far, so that those that follow need not compute it again: every layer's
// keys, rotated, and values. It takes the memory of all the positions it may ever hold when it is made.
#pragma once
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace sinter {

struct ModelConfig;

class LayerCache {
 public:
  LayerCache(const Dims& dims, DType dtype, DeviceType device);

  int64_t length() const { return length_; }  // positions held
  // Keys and values (batch, key/value heads, positions, head dimension) of the next positions; returns all of them so
  // far, as views.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v);
  void truncate(int64_t length);  // forgets later positions

 private:
  Tensor k_, v_;
  int64_t length_ = 0;
};

class KeyValueCache {
 public:
  // `dtype` is the type that the model computes in.
  KeyValueCache(const ModelConfig& config, int64_t batch, int64_t capacity, DType dtype, DeviceType device);

  std::vector<LayerCache> layers;
  int64_t length() const { return layers.front().length(); }
  void check_room(const Tensor& tokens) const;  // for (batch, n) more
  void truncate(int64_t length);

 private:
  int64_t batch_, capacity_;
};

}  // namespace sinter
