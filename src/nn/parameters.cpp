#include "nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <tuple>

#include "core/attrs.h"
#include "memory/promised_storage.h"
#include "ops/ops.h"

namespace sinter {
namespace {

constexpr const char* level_names[shard_level_count] = {"none", "broadcast", "optimizer", "gradients", "parameters"};
constexpr int64_t alignment = 128;  // elements: every leaf starts on a 256-byte boundary in every role

int64_t aligned(int64_t n, int64_t to = alignment) { return (n + to - 1) / to * to; }

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
  Tensor flat = empty_in_pool({n}, dtype, device, pool);
  fill(flat, 0);
  return flat;
}

}  // namespace

const char* name_of(ShardLevel level) { return level_names[int(level)]; }

ShardLevel shard_level_named(const std::string& name) {
  for (int i = 0; i < shard_level_count; ++i)
    if (name == level_names[i]) return ShardLevel(i);
  fail_with(ErrorKind::usage, "--shard {}: unknown; choose {}", name, fmt::join(level_names, ", "));
}

Init Init::linear(int64_t in, int64_t out) { return {truncated_normal, std::sqrt(2.0 / double(in + out))}; }

// Asked through the leaf's tensor, or through that of its 16-bit copy.
class Parameters::Absence : public Lender {
 public:
  Absence(const Parameters& of, const Role& role, int stretch) : of_(of), role_(role), stretch_(stretch) {}
  void lend(TensorImpl& to) override {
    const Stretch& s = of_.stretches_[size_t(stretch_)];
    if (of_.missing_) of_.missing_(role_, s);
    check(bool(to.storage), "{} of {} is sharded, and nobody is there to gather it; read it through dist::Sharding",
          role_.name, of_.units_[size_t(s.unit)].name);
  }

 private:
  const Parameters& of_;
  const Role& role_;
  int stretch_;
};

Parameters::Parameters(const Options& options) : options_(options) {
  const Shards& s = options.shards;
  check(s.ranks >= 1 && s.rank >= 0 && s.rank < s.ranks, "there is no rank {} among {}", s.rank, s.ranks);
  // The table of Note [Shards].
  bool all = s.level == ShardLevel::parameters;
  auto sharded_if = [](bool sharded) { return sharded ? Role::sharded : Role::whole; };
  master_ = &roles_.emplace_back(*this, "master", options.master, MemoryCategory::parameter, Role::all,
                                 sharded_if(all || (options.compute && s.level >= ShardLevel::optimizer)));
  if (options.compute)
    copy_ = &roles_.emplace_back(*this, "copy", *options.compute, MemoryCategory::low_copy, Role::all,
                                 all ? Role::absent : Role::whole);
  gradient_ = &roles_.emplace_back(*this, "gradient", options.master, MemoryCategory::gradient, Role::trainable,
                                   sharded_if(s.level >= ShardLevel::gradients && !s.whole_gradient));
}

Parameters::~Parameters() {
  for (LeafEntry& l : leaves_) {
    if (Leaf* leaf = leaf_of(l.tensor)) leaf->make_grad = leaf->release_grad = nullptr;  // the leaf may live on
    l.tensor.impl().lender = nullptr;
    if (l.tensor.impl().low_copy) l.tensor.impl().low_copy->lender = nullptr;
  }
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
  std::vector<int64_t> taken(size_t(options_.shards.ranks));
  for (size_t at = 0; at < order_.size(); ++at) {
    LeafEntry& l = leaves_[size_t(order_[at])];
    Unit& u = units_[size_t(l.unit)];
    auto goes_on = [&](const LeafEntry& next) {
      return l.frozen == next.frozen && (l.frozen || (l.unit == next.unit && l.is_vector() == next.is_vector()));
    };
    if (at == 0 || !goes_on(leaves_[size_t(order_[at - 1])]))
      stretches_.push_back({int(stretches_.size()), l.frozen ? -1 : l.unit, offset, offset});
    Stretch& s = stretches_.back();
    l.stretch = s.index;
    l.offset = offset;
    int64_t part = offset;
    for (int e = l.first_entry; e < l.first_entry + l.entry_count; ++e) {
      entries_[size_t(e)].offset = part;
      part += entries_[size_t(e)].dims.numel();
    }
    s.end = l.end = aligned(part);
    if (at + 1 == order_.size() || !goes_on(leaves_[size_t(order_[at + 1])])) {
      s.cut = options_.shards.level != ShardLevel::none && !l.frozen && !l.is_vector();
      cut(s, taken);
      l.end = s.end;
    }
    offset = l.end;
    if (l.frozen) continue;
    if (!seen[size_t(l.unit)]) u.begin = l.offset;
    seen[size_t(l.unit)] = true;
    u.end = trainable_size_ = offset;
  }
  total_size_ = offset;
}

// Where the stretch ends, with padding, and what this rank owns of it. `taken`: by rank, so far.
void Parameters::cut(Stretch& s, std::vector<int64_t>& taken) const {
  const Shards& shards = options_.shards;
  s.used_end = s.end;
  bool even = s.cut && shards.level != ShardLevel::broadcast;
  if (s.unit >= 0) s.end = s.begin + aligned(s.end - s.begin, squares_block * (even ? shards.ranks : 1));
  if (s.cut && !even) {
    auto least = std::min_element(taken.begin(), taken.end());
    *least += s.end - s.begin;
    s.owner = int(least - taken.begin());
  }
  std::tie(s.own_begin, s.own_end) = owned(s, shards.rank);
}

std::pair<int64_t, int64_t> Parameters::owned(const Stretch& s, int rank) const {
  if (!s.cut) return {s.begin, s.end};
  if (options_.shards.level == ShardLevel::broadcast) return {s.begin, s.owner == rank ? s.end : s.begin};
  int64_t share = (s.end - s.begin) / options_.shards.ranks;
  return {s.begin + rank * share, s.begin + (rank + 1) * share};
}

const Parameters::Stretch& Parameters::stretch_at(int64_t offset) const {
  auto after = std::upper_bound(stretches_.begin(), stretches_.end(), offset,
                                [](int64_t at, const Stretch& s) { return at < s.begin; });
  return *std::prev(after);
}

// Zeros; the gradient's comes later.
void Parameters::give_memory(Role& r) {
  r.end_ = r.extent == Role::all ? total_size_ : trainable_size_;
  r.elsewhere_.resize(units_.size());
  r.lent_.resize(stretches_.size());
  r.size_ = 0;
  for (const Stretch& s : stretches_) {
    if (s.begin >= r.end_) break;
    r.at_.push_back(r.size_);
    r.size_ += r.place == Role::whole             ? s.end - s.begin
               : r.place == Role::absent && s.cut ? 0
                                                  : s.own_end - s.own_begin;
  }
  if (&r == gradient_) return;
  bool is_communicated = (&r == master_ || &r == copy_) && options_.shards.level != ShardLevel::none;
  r.set_memory(zeroed(r.size_, r.dtype, options_.device, r.category, is_communicated ? options_.pool : nullptr));
}

// Where a stretch is sharded, every rank makes all of it and keeps its share.
void Parameters::fill_with_initial_values(const Stretch& s) {
  bool part = master_->lacks(s);
  Tensor all = part ? zeroed(s.end - s.begin, master_->dtype, options_.device, master_->category)
                    : master_->range(s.begin, s.end);
  for (const LeafEntry& l : leaves_) {
    if (l.stretch != s.index) continue;
    for (int i = l.first_entry; i < l.first_entry + l.entry_count; ++i) {
      Entry& e = entries_[size_t(i)];
      Tensor value = flat_view(all, e.dims, e.offset - s.begin);
      if (!part) e.value = value;
      if (e.init.kind == Init::ones) fill(value, 1);
      else if (e.init.kind == Init::truncated_normal)
        fill_normal(value, options_.seed, stream_of(e.name), e.init.std, 3);
    }
  }
  if (!part) return;
  copy_into(master_->range(s.own_begin, s.own_end), flat_view(all, {s.own_end - s.own_begin}, s.own_begin - s.begin));
  if (copy_ && !copy_->lacks(s)) copy_into(copy_->range(s.begin, s.end), all);
}

// Leaves of the stretch find the role's memory where it is now.
void Parameters::point(const Role& r, const Stretch& s) {
  Tensor all = r.lent(s).defined() || r.lacks(s) ? r.lent(s) : r.range(s.begin, s.end);
  auto set = [&](TensorImpl& impl, const LeafEntry& l) {
    impl.storage = all.defined() ? all.impl().storage : Ref<Storage>();
    impl.ref.data = all.defined() ? flat_view(all, l.tensor.dims(), l.offset - s.begin).data() : nullptr;
  };
  for (LeafEntry& l : leaves_) {
    if (l.stretch != s.index) continue;
    TensorImpl& impl = l.tensor.impl();
    if (&r == master_) set(impl, l);
    else if (&r == copy_) set(*impl.low_copy, l);
    else if (Leaf* leaf = leaf_of(l.tensor))
      leaf->grad = all.defined() ? flat_view(all, l.tensor.dims(), l.offset - s.begin) : Tensor(),
      leaf->has_grad = false;
  }
}

void Parameters::allocate() {
  check(!master().defined(), "allocate() was called twice");
  check(!leaves_.empty(), "the model declares no parameters");
  lay_out();
  NoGrad off;
  for (Role& r : roles_) give_memory(r);
  for (const Stretch& s : stretches_) fill_with_initial_values(s);

  auto absence = [&](const Role& role, const LeafEntry& l) {
    bool lacks = role.lacks(stretches_[size_t(l.stretch)]);
    return lacks ? absences_.emplace_back(std::make_unique<Absence>(*this, role, l.stretch)).get() : nullptr;
  };
  for (LeafEntry& l : leaves_) {
    TensorImpl& impl = l.tensor.impl();
    impl.lender = absence(*master_, l);
    if (Leaf* leaf = leaf_of(l.tensor)) {
      leaf->make_grad = [this, at = l.stretch] {
        allocate_grad();
        const Stretch& s = stretches_[size_t(at)];
        bool lacks = gradient_->lacks(s) || transient_gradient_;
        if (lacks && !gradient_->lent(s).defined() && missing_) missing_(*gradient_, s);
      };
      leaf->release_grad = [this] { release_grad(); };
    }
    if (!copy_) continue;
    Ref<TensorImpl> copy = new TensorImpl;
    copy->device = impl.device;
    copy->ref = impl.ref;
    copy->ref.dtype = copy_->dtype;
    copy->lender = absence(*copy_, l);
    impl.low_copy = copy;
  }
  for (const Stretch& s : stretches_) {
    point(*master_, s);
    if (copy_) point(*copy_, s);
  }
  refresh_stale_low_copy();
}

void Parameters::allocate_grad() {
  if (transient_gradient_) return;
  const bool tracing = context().recorder;
  const Tensor& grad = gradient_->flat_;
  if (!trainable_size_ || (grad.defined() && (tracing || !as_promise(grad.impl().storage)))) return;
  NoGrad off;
  if (tracing) {
    Ref<TensorImpl> impl = new TensorImpl;
    impl->device = options_.device;
    impl->ref.dtype = gradient_->dtype;
    impl->ref.rank = 1;
    impl->ref.dims[0] = gradient_->size_, impl->ref.strides[0] = 1;
    impl->storage = new PromisedStorage(gradient_->bytes(), [this] {
      allocate_grad();
      return gradient_->flat_.impl().storage;
    });
    impl->ref.data = impl->storage->data;
    gradient_->set_memory(Tensor(impl));
  } else {
    gradient_->set_memory(
        zeroed(gradient_->size_, gradient_->dtype, options_.device, gradient_->category, options_.pool));
  }
  for (const Stretch& s : stretches_) {
    if (s.unit < 0 || gradient_->lacks(s)) continue;
    Tensor all = gradient_->range(s.begin, s.end);
    for (LeafEntry& l : leaves_)
      if (l.stretch == s.index) leaf_of(l.tensor)->grad = flat_view(all, l.tensor.dims(), l.offset - s.begin);
  }
}

void Parameters::release_grad() {
  const Tensor& grad = gradient_->flat_;
  if (!grad.defined()) return;
  int64_t views = 1;
  for (const LeafEntry& l : leaves_) {
    if (l.frozen) continue;
    const Leaf& leaf = *leaf_of(l.tensor);
    if (leaf.has_grad) return;
    views += leaf.grad.defined() && leaf.grad.same_storage(grad);
  }
  if (grad.impl().storage->use_count() != views) return;
  for (const LeafEntry& l : leaves_)
    if (!l.frozen) leaf_of(l.tensor)->grad = {};
  gradient_->set_memory({});
}

Tensor Parameters::memory_for(const Role& r, const Stretch& s) const {
  CategoryScope scope(r.category);
  Dims all{s.end - s.begin};
  Tensor memory = empty_in_pool(all, r.dtype, options_.device, options_.pool);
  if (&r != gradient_) return memory;
  for (const LeafEntry& l : leaves_) {
    int64_t used = l.offset + l.tensor.numel();
    if (l.stretch == s.index && used < l.end) fill(flat_view(memory, {l.end - used}, used - s.begin), 0);
  }
  return memory;
}

void Parameters::lend(const Role& role, const Stretch& s, const Tensor& memory) {
  auto& r = const_cast<Role&>(role);  // handed out by this, for reading
  r.lent_[size_t(s.index)] = {memory, s.begin};
  memory.impl().storage->version = &r == gradient_ ? 0 : master_->writes();  // what it was gathered from
  point(r, s);
}

void Parameters::lend_share(const Stretch& s, const Tensor& memory) {
  take_back(*gradient_, s);
  gradient_->lent_[size_t(s.index)] = {memory, s.own_begin};
}

void Parameters::take_back(const Role& role, const Stretch& s) {
  if (!role.lent(s).defined()) return;
  const_cast<Role&>(role).lent_[size_t(s.index)] = {};
  point(role, s);
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
  if (place == whole) return flat().defined() ? flat_view(flat_, {end - begin}, begin) : Tensor();
  const Stretch& s = of_.stretch_at(begin);
  bool mine = s.own_begin <= begin && end <= s.own_end && !(place == absent && s.cut);
  bool transient = this == of_.gradient_ && of_.transient_gradient_;
  if (mine && !transient && flat().defined())
    return flat_view(flat_, {end - begin}, at_[size_t(s.index)] + begin - s.own_begin);
  const Lent& l = lent_[size_t(s.index)];
  bool there = l.memory.defined() && l.begin <= begin && end <= l.begin + l.memory.numel();
  return there ? flat_view(l.memory, {end - begin}, begin - l.begin) : Tensor();
}

Tensor Parameters::Role::view(const Entry& e) const {
  if (e.offset >= end_) return {};
  Tensor all = range(e.offset, e.offset + e.dims.numel());
  return all.defined() ? flat_view(all, e.dims, 0) : Tensor();
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
  Role::Place place = options_.shards.level == ShardLevel::none ? Role::whole : Role::sharded;
  Role& r = roles_.emplace_back(*this, name, dtype, category, Role::trainable, place);
  try {
    give_memory(r);
  } catch (...) {
    roles_.pop_back();
    throw;
  }
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
  check(e.offset < r.end_, "load({}, {}): the parameter is frozen and has a master only", role_name, name);
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
  const Stretch& s = stretch_at(e.offset);
  int64_t begin = e.offset, end = e.offset + e.dims.numel();
  if (r.place != Role::whole) begin = std::max(begin, s.own_begin), end = std::min(end, s.own_end);
  write_within(e.offset, e.offset + e.dims.numel(), [&] {
    if (begin >= end) return r.flat().bump_version();  // another rank's, but it has changed all the same
    if (&r == gradient_ && !r.lacks(s)) {
      Leaf& leaf = *leaf_of(leaf_with(e).tensor);
      if (!leaf.has_grad) fill(leaf.grad, 0);  // the others of its group
      leaf.has_grad = true;
    }
    copy_into(r.range(begin, end), flat_view(contiguous(values), {end - begin}, begin - e.offset));
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

// Side by side in memory, such leaves make one range; of sharded roles, those of one stretch.
template <class F> std::vector<std::pair<int64_t, int64_t>> Parameters::ranges_of(const F& wanted) const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int i : order_) {
    const LeafEntry& l = leaves_[size_t(i)];
    if (!wanted(l)) continue;
    bool joins = !ranges.empty() && ranges.back().second == l.offset &&
                 (options_.shards.level == ShardLevel::none || stretches_[size_t(l.stretch)].begin < l.offset);
    if (joins) ranges.back().second = l.end;
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

// What is sharded is gathered anew by whoever gathers.
void Parameters::refresh_stale_low_copy() {
  if (!copy_) return;
  auto is_stale = [&, now = master_->writes()](const LeafEntry& l) {
    return !l.has_current_copy(now) && !master_->lacks(stretches_[size_t(l.stretch)]);
  };
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
