// Tensor: a strided view of reference-counted storage. It knows nothing of arithmetic;
// gradients hang on an opaque node.
#pragma once
#include "core/device.h"
#include "core/dims.h"
#include "core/ref.h"

namespace sinter {

// Where storage comes from and goes back to.
class Allocator {
 public:
  virtual ~Allocator() = default;
  struct Allocation {
    void* data;
    void* token;  // what the allocator knows it by
  };
  // `holds` says what it is for, to whoever looks at the log; null: no tensor.
  virtual Allocation allocate(int64_t bytes, void* stream, const TensorRef* holds = nullptr) = 0;
  virtual void release(void* token) noexcept = 0;
};

class Storage : public RefCounted {
 public:
  Storage(Allocator& allocator, int64_t bytes, void* stream, const TensorRef* holds = nullptr)
      : Storage(allocator, allocator.allocate(bytes, stream, holds), bytes) {}
  ~Storage() override { allocator_.release(token_); }

  void* const data;
  const int64_t bytes;
  uint32_t version = 0;  // counts writes in place; a saved tensor or 16-bit copy that is older is stale

 private:
  Storage(Allocator& allocator, Allocator::Allocation a, int64_t bytes)
      : data(a.data), bytes(bytes), allocator_(allocator), token_(a.token) {}
  Allocator& allocator_;
  void* token_;
};

// What the tape hangs on a tensor: the operation that made it, or the leaf it is.
class GradientTarget : public RefCounted {
 public:
  virtual bool is_leaf() const = 0;
};

class TensorImpl;

// Who has the memory of a tensor that is not always there: a parameter that ranks share.
class Lender {
 public:
  virtual ~Lender() = default;
  virtual void lend(TensorImpl& to) = 0;
};

class TensorImpl : public RefCounted {
 public:
  Ref<Storage> storage;      // null: away, and whoever reads it asks the lender
  Lender* lender = nullptr;  // null: the memory is always there
  TensorRef ref;             // ready to be an operand of a KernelCall
  DeviceType device = DeviceType::cpu;
  bool requires_grad = false;
  int output_index = 0;  // which output of `target` this is
  Ref<GradientTarget> target;
  // A parameter's 16-bit copy and the master's version it was made from (decision: 16-bit weights are state).
  Ref<TensorImpl> low_copy;
  uint32_t low_copy_version = 0;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return bool(impl_); }
  TensorImpl& impl() const { return *impl_; }
  const TensorRef& ref() const { return impl_->ref; }

  DType dtype() const { return impl_->ref.dtype; }
  DeviceType device() const { return impl_->device; }
  int rank() const { return impl_->ref.rank; }
  Dims dims() const { return {impl_->ref.dims, impl_->ref.rank}; }
  Dims strides() const { return {impl_->ref.strides, impl_->ref.rank}; }
  int64_t size(int d) const {  // negative counts from the end
    int r = rank(), i = d < 0 ? d + r : d;
    check(i >= 0 && i < r, "dimension {} of a tensor of shape {} does not exist", d, dims());
    return impl_->ref.dims[i];
  }
  int64_t stride(int d) const { return impl_->ref.strides[d < 0 ? d + rank() : d]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank(); ++d) n *= impl_->ref.dims[d];
    return n;
  }
  int64_t bytes() const { return numel() * size_of(dtype()); }
  void* data() const { return impl_->ref.data; }
  template <class T> T* data_as() const { return static_cast<T*>(impl_->ref.data); }

  bool is_contiguous() const {
    int64_t expected = 1;
    for (int d = rank() - 1; d >= 0; --d) {
      if (impl_->ref.dims[d] == 1) continue;
      if (impl_->ref.strides[d] != expected) return false;
      expected *= impl_->ref.dims[d];
    }
    return true;
  }

  bool requires_grad() const { return impl_->requires_grad; }
  bool same_storage(const Tensor& o) const { return impl_->storage.get() == o.impl_->storage.get(); }
  // No one else can see this memory: it may be overwritten.
  bool is_exclusive() const { return impl_->use_count() == 1 && impl_->storage->use_count() == 1; }
  void bump_version() const { ++impl_->storage->version; }
  Tensor detach() const;  // same memory, outside the tape

 private:
  Ref<TensorImpl> impl_;
};

// A view with the given layout; offset in elements.
Tensor make_view(const Tensor& base, const Dims& dims, const Dims& strides, int64_t offset);
Dims contiguous_strides(const Dims& dims);

}  // namespace sinter
