#include "nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

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

Tensor zeroed(int64_t n, DType dtype, DeviceType device, MemoryCategory category, void* pool = nullptr) {
  CategoryScope scope(category);
  if (!pool) return zeros({n}, dtype, device);
  Tensor flat = empty_in_pool({n}, dtype, device, pool);
  fill(flat, 0);
  return flat;
}

}  // namespace

Init Init::linear(int64_t in, int64_t out) { return {truncated_normal, std::sqrt(2.0 / double(in + out))}; }

Parameters::Parameters(const Options& options) : options_(options) {
  master_ = &roles_.emplace_back("master", options.master, MemoryCategory::parameter, Role::all);
  if (options.compute) copy_ = &roles_.emplace_back("copy", *options.compute, MemoryCategory::low_copy, Role::all);
  gradient_ = &roles_.emplace_back("gradient", options.master, MemoryCategory::gradient, Role::trainable);
}

Parameters::~Parameters() {
  for (LeafEntry& l : leaves_)
    if (Leaf* leaf = leaf_of(l.tensor)) leaf->make_grad = leaf->release_grad = nullptr;  // the leaf may live on
}

void Parameters::begin_unit(const std::string& name) { units_.push_back({name, int(units_.size())}); }

Tensor Parameters::add_group(const std::vector<ParameterSpec>& parts) {
  check(!master().defined(), "parameters must be declared before allocate()");
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
    entries_.push_back({p.name, p.dims, p.init, int(units_.size()) - 1, 0, {}});
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
  check(!master().defined(), "freeze({}): parameters are frozen before allocate()", name);
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
    offset = l.end = aligned(part);
    if (l.frozen) continue;
    if (!seen[size_t(l.unit)]) u.begin = l.offset;
    seen[size_t(l.unit)] = true;
    u.end = trainable_size_ = offset;
  }
  total_size_ = offset;
}

void Parameters::allocate() {
  check(!master().defined(), "allocate() was called twice");
  check(!leaves_.empty(), "the model declares no parameters");
  lay_out();
  NoGrad off;
  for (Role& r : roles_) {
    r.size_ = r.extent == Role::all ? total_size_ : trainable_size_;
    r.elsewhere_.resize(units_.size());
    if (&r != gradient_) r.set_memory(zeroed(r.size_, r.dtype, options_.device, r.category));
  }

  for (LeafEntry& l : leaves_) {
    TensorImpl& impl = l.tensor.impl();
    impl.storage = master().impl().storage;
    impl.ref.data = flat_view(master(), l.tensor.dims(), l.offset).data();
    if (Leaf* leaf = leaf_of(l.tensor)) {
      leaf->make_grad = [this] { allocate_grad(); };
      leaf->release_grad = [this] { release_grad(); };
    }
    if (copy_) impl.low_copy = &flat_view(low_copy(), l.tensor.dims(), l.offset).impl();
    for (int i = l.first_entry; i < l.first_entry + l.entry_count; ++i) {
      Entry& e = entries_[size_t(i)];
      e.value = master_->view(e);
      if (e.init.kind == Init::ones) fill(e.value, 1);
      else if (e.init.kind == Init::truncated_normal)
        fill_normal(e.value, options_.seed, stream_of(e.name), e.init.std, 3);
    }
  }
  refresh_stale_low_copy();
}

void Parameters::allocate_grad() {
  const bool tracing = context().recorder;
  const Tensor& grad = gradient_->flat_;
  if (!trainable_size_ || (grad.defined() && (tracing || !as_promise(grad.impl().storage)))) return;
  NoGrad off;
  if (tracing) {
    Ref<TensorImpl> impl = new TensorImpl;
    impl->device = options_.device;
    impl->ref.dtype = gradient_->dtype;
    impl->ref.rank = 1;
    impl->ref.dims[0] = trainable_size_, impl->ref.strides[0] = 1;
    impl->storage = new PromisedStorage(gradient_->bytes(), [this] {
      allocate_grad();
      return gradient_->flat_.impl().storage;
    });
    impl->ref.data = impl->storage->data;
    gradient_->set_memory(Tensor(impl));
  } else {
    gradient_->set_memory(
        zeroed(trainable_size_, gradient_->dtype, options_.device, gradient_->category, options_.gradient_pool));
  }
  for (LeafEntry& l : leaves_)
    if (!l.frozen) leaf_of(l.tensor)->grad = flat_view(grad, l.tensor.dims(), l.offset);
}

void Parameters::release_grad() {
  const Tensor& grad = gradient_->flat_;
  if (!grad.defined()) return;
  int64_t views = 1;
  for (const LeafEntry& l : leaves_) {
    if (l.frozen) continue;
    if (leaf_of(l.tensor)->has_grad) return;
    ++views;
  }
  if (grad.impl().storage->use_count() != views) return;
  for (const LeafEntry& l : leaves_)
    if (!l.frozen) leaf_of(l.tensor)->grad = {};
  gradient_->set_memory({});
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

std::vector<Parameters::TrainableLeaf> Parameters::trainable_leaves() const {
  std::vector<TrainableLeaf> all;
  for (int i : order_) {
    const LeafEntry& l = leaves_[size_t(i)];
    if (l.frozen) continue;
    TrainableLeaf& t = all.emplace_back(TrainableLeaf{leaf_of(l.tensor), l.offset, l.end, {}});
    for (int e = l.first_entry; e < l.first_entry + l.entry_count; ++e) {
      const Entry& entry = entries_[size_t(e)];
      t.entries.emplace_back(entry.offset, entry.offset + entry.dims.numel());
    }
  }
  return all;
}

const Tensor& Parameters::Role::flat() const {
  static const Tensor none;
  bool only_promised = flat_.defined() && as_promise(flat_.impl().storage) && !context().recorder;
  return only_promised ? none : flat_;
}

Tensor Parameters::Role::range(int64_t begin, int64_t end) const {
  return flat().defined() ? flat_view(flat_, {end - begin}, begin) : Tensor();
}

Tensor Parameters::Role::view(const Entry& e) const {
  return flat().defined() && e.offset < size_ ? flat_view(flat_, e.dims, e.offset) : Tensor();
}

// A version goes on counting where the last memory's ended.
void Parameters::Role::set_memory(Tensor flat) {
  for (uint32_t& n : elsewhere_) n -= writes() + 1;
  flat_ = std::move(flat);
}

const Parameters::Role& Parameters::role(const std::string& name) const {
  std::vector<std::string> names;
  for (const Role& r : roles_) {
    if (r.name == name) return r;
    names.push_back(r.name);
  }
  fail_with(ErrorKind::usage, "parameters have no role {}; there are {}", name, fmt::join(names, ", "));
}

const Parameters::Role& Parameters::add_role(const std::string& name, DType dtype, MemoryCategory category) {
  refuse_while_tracing("a role of parameters is added");
  check(master().defined(), "add_role({}): call allocate() first", name);
  for (const Role& r : roles_)
    check(r.name != name,
          "parameters have a role {} already: two optimizers over one set of parameters would share it; destroy the "
          "first, or give each its own parameters",
          name);
  NoGrad off;
  Tensor flat = zeroed(trainable_size_, dtype, options_.device, category);
  Role& r = roles_.emplace_back(name, dtype, category, Role::trainable);
  r.size_ = trainable_size_;
  r.elsewhere_.resize(units_.size());
  r.set_memory(std::move(flat));
  return r;
}

void Parameters::remove_role(const std::string& name) {
  const Role* r = &role(name);
  check(r != master_ && r != copy_ && r != gradient_, "remove_role({}): parameters cannot do without it", name);
  roles_.remove_if([r](const Role& other) { return &other == r; });
}

const Tensor& Parameters::low_copy() const {
  static const Tensor none;
  return copy_ ? copy_->flat() : none;
}

Parameters::LeafEntry& Parameters::leaf_with(const Entry& entry) {
  auto after = std::upper_bound(leaves_.begin(), leaves_.end(), &entry - entries_.data(),
                                [](int64_t index, const LeafEntry& l) { return index < l.first_entry; });
  return *std::prev(after);
}

void Parameters::load(const std::string& role_name, const std::string& name, const Tensor& values) {
  refuse_while_tracing("a parameter is loaded");
  check(master().defined(), "load({}, {}): call allocate() first", role_name, name);
  const Role& r = role(role_name);
  const Entry& e = find(name);
  check(&r != copy_, "load({}, {}): the copy follows the master; load that", role_name, name);
  check(e.offset < r.size_, "load({}, {}): the parameter is frozen and has a master only", role_name, name);
  check(values.defined(), "load({}, {}): the values are an empty Tensor", role_name, name);
  check(values.dims() == e.dims, "load({}, {}): the parameter has shape {}, the values {}", role_name, name, e.dims,
        values.dims());
  check(values.dtype() == r.dtype,
        "load({0}, {1}): the role is {2}, the values are {3}; if that is meant, cast them to {2}", role_name, name,
        name_of(r.dtype), name_of(values.dtype()));
  check(values.device() == options_.device,
        "load({}, {}): parameters are on {}, the values on {}; move them with to(device)", role_name, name,
        name_of(options_.device), name_of(values.device()));
  if (&r == gradient_) allocate_grad();
  write_within(e.offset, e.offset + e.dims.numel(), [&] {
    if (&r == gradient_) {
      Leaf& leaf = *leaf_of(leaf_with(e).tensor);
      if (!leaf.has_grad) fill(leaf.grad, 0);  // the others of its group
      leaf.has_grad = true;
    }
    copy_into(r.view(e), values);
  });
}

void Parameters::write_within(int64_t begin, int64_t end, const std::function<void()>& write) {
  std::vector<uint32_t> before;
  for (const Role& r : roles_) before.push_back(r.writes());
  uint32_t master_before = master_->writes();
  write();
  std::vector<bool> touched(units_.size());
  for (const LeafEntry& l : leaves_) {
    if (l.offset < end && begin < l.end) touched[size_t(l.unit)] = true;
    else if (l.has_current_copy(master_before)) l.tensor.impl().low_copy_version = master_->writes();
  }
  size_t i = 0;
  for (Role& r : roles_) {
    uint32_t writes = r.writes() - before[i++];
    for (size_t u = 0; u < units_.size(); ++u)
      if (!touched[u]) r.elsewhere_[u] += writes;
  }
}

// Side by side in memory, such leaves make one range.
template <class F> std::vector<std::pair<int64_t, int64_t>> Parameters::ranges_of(const F& wanted) const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int i : order_) {
    const LeafEntry& l = leaves_[size_t(i)];
    if (!wanted(l)) continue;
    if (!ranges.empty() && ranges.back().second == l.offset) ranges.back().second = l.end;
    else ranges.emplace_back(l.offset, l.end);
  }
  return ranges;
}

std::vector<std::pair<int64_t, int64_t>> Parameters::ranges_with_grad() const {
  auto has_grad = [](const LeafEntry& l) { return leaf_of(l.tensor)->has_grad; };
  for (auto [begin, end] : ranges_of([&](const LeafEntry& l) { return !l.frozen && !has_grad(l); }))
    fill(gradient_->range(begin, end), 0);
  return ranges_of([&](const LeafEntry& l) { return !l.frozen && has_grad(l); });
}

void Parameters::zero_grad() const {
  for (const LeafEntry& l : leaves_) sinter::zero_grad(l.tensor);
}

void Parameters::refresh_stale_low_copy() {
  if (!copy_) return;
  auto is_stale = [now = master_->writes()](const LeafEntry& l) { return !l.has_current_copy(now); };
  for (auto [begin, end] : ranges_of(is_stale))
    write_within(begin, end,
                 [&, begin = begin, end = end] { copy_into(copy_->range(begin, end), master_->range(begin, end)); });
  low_copy_is_current();
}

void Parameters::low_copy_is_current() const {
  if (context().recorder) return;  // nothing has been written yet
  for (const LeafEntry& l : leaves_) l.tensor.impl().low_copy_version = master_->writes();
}

}  // namespace sinter
