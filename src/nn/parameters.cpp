#include "nn/parameters.h"

#include <algorithm>
#include <cmath>

#include "memory/promised_storage.h"
#include "ops/ops.h"

namespace sinter {
namespace {

constexpr int64_t alignment = 128;  // elements: every leaf starts on a 256-byte boundary in every role

int64_t aligned(int64_t n) { return (n + alignment - 1) / alignment * alignment; }

// A parameter's random stream follows from its name alone (FNV-1a), so adding or reordering others does not change it.
uint64_t stream_of(const std::string& name) {
  uint64_t h = 1469598103934665603ull;
  for (unsigned char c : name) h = (h ^ c) * 1099511628211ull;
  return h;
}

Tensor flat_view(const Tensor& buffer, const Dims& dims, int64_t offset) {
  return make_view(buffer, dims, contiguous_strides(dims), offset);
}

Tensor zeroed(int64_t n, DType dtype, DeviceType device, MemoryCategory category) {
  CategoryScope scope(category);
  return zeros({n}, dtype, device);
}

}  // namespace

Init Init::linear(int64_t in, int64_t out) { return {truncated_normal, std::sqrt(2.0 / double(in + out))}; }

Parameters::~Parameters() {
  for (LeafEntry& l : leaves_)
    if (Leaf* leaf = leaf_of(l.tensor)) leaf->make_grad = leaf->release_grad = nullptr;  // the leaf may live on
}

void Parameters::begin_unit(const std::string& name) { units_.push_back({name}); }

Tensor Parameters::add_group(const std::vector<ParameterSpec>& parts) {
  check(!master_.defined(), "parameters must be declared before allocate()");
  check(!parts.empty(), "a parameter group needs at least one parameter");
  if (units_.empty()) begin_unit("model");
  Dims dims = parts[0].dims;
  dims[0] = 0;
  int first = int(entries_.size());
  std::string joined;
  for (const ParameterSpec& p : parts) {
    check(p.dims.rank() >= 1 && p.dims.numel() > 0, "parameter {}: shape {} is empty", p.name, p.dims);
    for (int d = 1; d < p.dims.rank(); ++d)
      check(p.dims.rank() == dims.rank() && p.dims[d] == dims[d], "parameter {}: shape {} does not join {}", p.name,
            p.dims, parts[0].dims);
    check(names_.insert(p.name).second, "parameter {} is declared twice; to tie, use the same Tensor", p.name);
    dims[0] += p.dims[0];
    entries_.push_back({p.name, p.dims, p.init, 0, {}, {}});
    joined += (joined.empty() ? "" : "|") + p.name;
  }
  Ref<TensorImpl> impl = new TensorImpl;
  impl->device = options_.device;
  impl->ref.dtype = options_.master;
  impl->ref.rank = dims.rank();
  std::copy(dims.begin(), dims.end(), impl->ref.dims);
  Dims strides = contiguous_strides(dims);
  std::copy(strides.begin(), strides.end(), impl->ref.strides);
  Tensor leaf(impl);
  require_grad(leaf).name = joined;
  leaves_.push_back({leaf, int(units_.size()) - 1, first, int(parts.size())});
  return leaf;
}

void Parameters::freeze(const std::string& name) {
  check(!master_.defined(), "freeze({}): parameters are frozen before allocate()", name);
  for (LeafEntry& l : leaves_)
    for (int e = l.first_entry; e < l.first_entry + l.entry_count; ++e)
      if (entries_[size_t(e)].name == name) {
        check(l.entry_count == 1, "freeze({}): it is part of the group {}, which is one leaf", name,
              leaf_of(l.tensor)->name);
        l.frozen = true;
        l.tensor.impl().requires_grad = false;
        l.tensor.impl().target = {};
        return;
      }
  fail_with(ErrorKind::usage, "freeze({}): there is no such parameter", name);
}

void Parameters::lay_out() {
  order_.resize(leaves_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = int(i);
  // Trainable before frozen; late units first; matrices before vectors; late before early.
  std::sort(order_.begin(), order_.end(), [&](int a, int b) {
    const LeafEntry &x = leaves_[size_t(a)], &y = leaves_[size_t(b)];
    if (x.frozen != y.frozen) return y.frozen;
    if (x.unit != y.unit) return x.unit > y.unit;
    if (x.is_vector() != y.is_vector()) return y.is_vector();
    return a > b;
  });
  int64_t offset = 0;
  std::vector<bool> seen(units_.size());
  for (int i : order_) {
    LeafEntry& l = leaves_[size_t(i)];
    Unit& u = units_[size_t(l.unit)];
    l.offset = offset;
    int64_t part = offset;
    for (int e = l.first_entry; e < l.first_entry + l.entry_count; ++e) {
      entries_[size_t(e)].offset = part;
      part += entries_[size_t(e)].dims.numel();
    }
    offset = aligned(part);
    if (l.frozen) continue;
    if (!seen[size_t(l.unit)]) u.begin = l.offset;
    seen[size_t(l.unit)] = true;
    u.end = trainable_size_ = offset;
  }
  total_size_ = offset;
}

void Parameters::allocate() {
  check(!master_.defined(), "allocate() was called twice");
  check(!leaves_.empty(), "the model declares no parameters");
  lay_out();
  NoGrad off;
  DeviceType device = options_.device;
  master_ = zeroed(total_size_, options_.master, device, MemoryCategory::parameter);
  if (options_.compute) low_copy_ = zeroed(total_size_, *options_.compute, device, MemoryCategory::low_copy);

  for (LeafEntry& l : leaves_) {
    TensorImpl& impl = l.tensor.impl();
    impl.storage = master_.impl().storage;
    impl.ref.data = flat_view(master_, l.tensor.dims(), l.offset).data();
    if (Leaf* leaf = leaf_of(l.tensor)) {
      leaf->make_grad = [this] { allocate_grad(); };
      leaf->release_grad = [this] { release_grad(); };
    }
    if (options_.compute) impl.low_copy = &flat_view(low_copy_, l.tensor.dims(), l.offset).impl();
    for (int i = l.first_entry; i < l.first_entry + l.entry_count; ++i) {
      Entry& e = entries_[size_t(i)];
      e.value = flat_view(master_, e.dims, e.offset);
      if (e.init.kind == Init::ones) fill(e.value, 1);
      else if (e.init.kind == Init::truncated_normal)
        fill_normal(e.value, options_.seed, stream_of(e.name), e.init.std, 3);
    }
  }
  refresh_low_copy();
}

void Parameters::allocate_grad() {
  const bool tracing = context().recorder;
  if (!trainable_size_ || (grad_.defined() && (tracing || !as_promise(grad_.impl().storage)))) return;
  NoGrad off;
  if (tracing) {
    Ref<TensorImpl> impl = new TensorImpl;
    impl->device = options_.device;
    impl->ref.dtype = options_.master;
    impl->ref.rank = 1;
    impl->ref.dims[0] = trainable_size_, impl->ref.strides[0] = 1;
    impl->storage = new PromisedStorage(trainable_size_ * size_of(options_.master), [this] {
      allocate_grad();
      return grad_.impl().storage;
    });
    impl->ref.data = impl->storage->data;
    grad_ = Tensor(impl);
  } else {
    grad_ = new_role(options_.master, MemoryCategory::gradient);
  }
  for (LeafEntry& l : leaves_) {
    if (l.frozen) continue;
    leaf_of(l.tensor)->grad = flat_view(grad_, l.tensor.dims(), l.offset);
    for (int i = l.first_entry; i < l.first_entry + l.entry_count; ++i) {
      Entry& e = entries_[size_t(i)];
      e.grad = flat_view(grad_, e.dims, e.offset);
    }
  }
}

void Parameters::release_grad() {
  if (!grad_.defined()) return;
  int64_t views = 1;
  for (const LeafEntry& l : leaves_) {
    if (l.frozen) continue;
    if (leaf_of(l.tensor)->has_grad) return;
    views += 1 + l.entry_count;
  }
  if (grad_.impl().storage->use_count() != views) return;
  for (const LeafEntry& l : leaves_)
    if (!l.frozen) leaf_of(l.tensor)->grad = {};
  for (Entry& e : entries_) e.grad = {};
  grad_ = {};
}

const Parameters::Entry& Parameters::find(const std::string& name) const {
  for (const Entry& e : entries_)
    if (e.name == name) return e;
  fail_with(ErrorKind::usage, "there is no parameter {}", name);
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Entry& e : entries_) n += e.dims.numel();
  return n;
}

Tensor Parameters::new_role(DType dtype, MemoryCategory category) const {
  return zeroed(trainable_size_, dtype, options_.device, category);
}

std::vector<std::pair<int64_t, int64_t>> Parameters::ranges_with_grad() const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int i : order_) {
    const LeafEntry& l = leaves_[size_t(i)];
    if (l.frozen) break;  // these lie last
    int64_t begin = l.offset, end = aligned(l.offset + l.tensor.numel());
    if (!leaf_of(l.tensor)->has_grad) fill(flat_view(grad_, {end - begin}, begin), 0);
    else if (!ranges.empty() && ranges.back().second == begin) ranges.back().second = end;
    else ranges.emplace_back(begin, end);
  }
  return ranges;
}

void Parameters::zero_grad() const {
  for (const LeafEntry& l : leaves_) sinter::zero_grad(l.tensor);
}

void Parameters::refresh_low_copy() const {
  if (!low_copy_.defined()) return;
  copy_into(low_copy_, master_);
  low_copy_is_current();
}

void Parameters::refresh_stale_low_copy() const {
  for (const LeafEntry& l : leaves_)
    if (l.tensor.impl().low_copy_version != master_.impl().storage->version) return refresh_low_copy();
}

void Parameters::low_copy_is_current() const {
  for (const LeafEntry& l : leaves_) l.tensor.impl().low_copy_version = master_.impl().storage->version;
}

}  // namespace sinter
