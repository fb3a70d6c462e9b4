#include "core/tensor.h"

namespace sinter {

Tensor make_view(const Tensor& base, const Dims& dims, const Dims& strides, int64_t offset) {
  Ref<TensorImpl> impl = new TensorImpl;
  const TensorImpl& b = base.impl();
  impl->storage = b.storage;
  impl->device = b.device;
  impl->ref.dtype = b.ref.dtype;
  impl->ref.data = static_cast<char*>(b.ref.data) + offset * size_of(b.ref.dtype);
  impl->ref.rank = dims.rank();
  std::copy(dims.begin(), dims.end(), impl->ref.dims);
  std::copy(strides.begin(), strides.end(), impl->ref.strides);
  return Tensor(std::move(impl));
}

Tensor Tensor::detach() const { return make_view(*this, dims(), strides(), 0); }

Dims contiguous_strides(const Dims& dims) {
  Dims s = dims;
  int64_t stride = 1;
  for (int d = dims.rank() - 1; d >= 0; --d) {
    s[d] = stride;
    stride *= dims[d];
  }
  return s;
}

}  // namespace sinter
