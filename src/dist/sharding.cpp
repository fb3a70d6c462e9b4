#include "dist/sharding.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "backend/choices.h"
#include "core/attrs.h"
#include "core/check.h"
#include "core/range.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace sinter::dist {
namespace {

Tensor part_of(const Tensor& all, const Parameters::Stretch& s, int64_t begin, int64_t end) {
  return slice(all, 0, begin - s.begin, end - begin);
}
Tensor own_part(const Tensor& all, const Parameters::Stretch& s) { return part_of(all, s, s.own_begin, s.own_end); }

bool is_tracing() { return context().recorder; }

}  // namespace

Parameters::Shards shards_of(const ShardOptions& o, const ProcessGroup& group) {
  return {o.level, group.rank(), group.size(), o.accumulate_unsharded};
}

Sharding::Sharding(Parameters& parameters, ProcessGroup& group, const ShardOptions& options)
    : parameters_(parameters),
      group_(group),
      options_(options),
      master_(parameters.role("master")),
      gradient_(parameters.role("gradient")),
      copy_(parameters.options().compute ? &parameters.role("copy") : nullptr),
      leaves_(parameters.trainable_leaves()) {
  const Parameters::Shards& s = parameters.options().shards;
  check(s.level == options.level && s.ranks == group.size() && s.rank == group.rank(),
        "parameters were made for rank {} of {} at level {}, not for rank {} of {} at level {}; make them with "
        "dist::shards_of()",
        s.rank, s.ranks, name_of(s.level), group.rank(), group.size(), name_of(options.level));
  for (const auto& l : leaves_) stretch_of_.push_back(parameters.stretch_at(l.begin).index);
  NoGrad off;
  Range range("broadcast", RangeKind::phase);
  if (master_.place == Role::whole) {
    broadcast(parameters_.master(), group_);
    join_communication(device());
    parameters_.refresh_stale_low_copy();
  } else if (device() != DeviceType::meta) {
    // Halves, which fp64 holds exactly.
    uint64_t seed = parameters.options().seed;
    std::vector<double> mine = {double(seed >> 32), double(uint32_t(seed))}, all(2 * size_t(group.size()));
    group.run({CollectiveKind::all_gather, ReduceKind::sum, DType::f64, 0, int64_t(all.size())}, mine.data(),
              all.data(), nullptr);
    for (size_t r = 1; r < size_t(group.size()); ++r)
      check(all[2 * r] == all[0] && all[2 * r + 1] == all[1],
            "ranks 0 and {} have different seeds; every rank makes its share of the parameters itself, so give all of "
            "them the same --seed",
            r);
  }
  note_gathered();
  // Last of all: nothing fails after it, and leaves the parameters with what is gone.
  for (size_t i = 0; i < leaves_.size(); ++i)
    leaves_[i].leaf->hooks.push_back([this, i](Leaf& l) {
      if (l.has_grad) arrived(i);
    });
  parameters_.when_missing([this](const Role& role, const Stretch& stretch) { missing(role, stretch); });
}

Sharding::~Sharding() {
  end_pass();
  drain_communication(device());
  parameters_.when_missing({});
  for (const auto& l : leaves_) l.leaf->hooks.pop_back();
}

// ---- values ------------------------------------------------------------------------------------------------------

void Sharding::begin_pass() {
  backward_ = false, reducing_ = false;
  at_ = 0;
  if (!is_tracing()) gather_ahead();
}

void Sharding::end_pass() noexcept {
  // Of a pass that went well, nothing is under way any more.
  if (!ahead_.empty() || reducing_ || stepping_) drain_communication(device());
  ahead_.clear(), reductions_.clear();
  parameters_.set_transient_gradient(false);  // so that what is taken back lies where it did before
  for (const Key& k : here_) parameters_.take_back(*k.role, parameters_.stretches()[size_t(k.stretch)]);
  here_.clear();
  for (const Stretch& s : parameters_.stretches()) parameters_.take_back(gradient_, s);
  reducing_ = stepping_ = false;
}

Sharding::Gathering Sharding::start_gathering(const Role& role, const Stretch& s) {
  NoGrad off;
  Range range("gather", RangeKind::module, Place::here());
  Tensor all = parameters_.memory_for(role, s), share = master_.range(s.own_begin, s.own_end);
  if (role.dtype != master_.dtype) {  // on the wire it has the type that ops read
    Tensor mine = own_part(all, s);
    copy_into(mine, share);
    share = mine;
  }
  all_gather(share, all, group_);
  return {all, collectives_so_far(device())};
}

void Sharding::missing(const Role& role, const Stretch& s) {
  if (&role == &gradient_) return parameters_.lend(role, s, parameters_.memory_for(role, s));
  Key key{&role, s.index};
  if (!backward_ && options_.reshard_after_forward) give_back_others(s.unit);
  auto known = ahead_.find(key);
  Gathering g = known == ahead_.end() ? start_gathering(role, s) : known->second;
  if (known != ahead_.end()) ahead_.erase(known);
  join_communication(device(), g.collectives);
  parameters_.lend(role, s, g.memory);
  here_.insert(key);
  if (is_tracing()) return;
  std::vector<Key>& order = order_[backward_];
  if (at_ < order.size() && order[at_] == key) {
    ++at_;
  } else {
    order.resize(at_);
    order.push_back(key);
    at_ = order.size();
    join_communication(device());
    ahead_.clear();
  }
  gather_ahead();
}

void Sharding::gather_ahead() {
  const std::vector<Key>& order = order_[backward_];
  for (size_t i = at_; i < std::min(at_ + choices::units_ahead, order.size()); ++i)
    if (!ahead_.contains(order[i]) && !here_.contains(order[i]))
      ahead_[order[i]] = start_gathering(*order[i].role, parameters_.stretches()[size_t(order[i].stretch)]);
}

void Sharding::give_back_others(int unit) {
  std::erase_if(here_, [&](const Key& k) {
    const Stretch& s = parameters_.stretches()[size_t(k.stretch)];
    if (s.unit == unit) return false;
    parameters_.take_back(*k.role, s);
    return true;
  });
}

// ---- gradients ---------------------------------------------------------------------------------------------------

// The last unit's parameters stay where the backward pass begins with them.
void Sharding::begin_backward(Window window) {
  window_ = window;
  backward_ = reducing_ = true;
  at_ = 0;
  waits_for_.assign(parameters_.stretches().size(), 0);
  for (int s : stretch_of_) ++waits_for_[size_t(s)];
  parameters_.set_transient_gradient(window.used_up && is_tracing() && gradient_.place == Role::sharded);
  if (options_.level != ShardLevel::parameters) give_back_others(-1);
  else if (!is_tracing()) gather_ahead();
}

void Sharding::arrived(size_t leaf) {
  if (!reducing_) return;
  NoGrad off;
  const Stretch& s = parameters_.stretches()[size_t(stretch_of_[leaf])];
  if (--waits_for_[size_t(s.index)] > 0) return;
  reduce(s);
  // Every use of it in this pass has given its gradient: nobody reads the parameters any more.
  for (const Role* role : {&master_, copy_})
    if (role && here_.erase({role, s.index})) parameters_.take_back(*role, s);
}

void Sharding::reduce(const Stretch& s) {
  if (!gradient_.lacks(s)) {
    if (!window_.last) return;
    Tensor all = gradient_.range(s.begin, s.end);
    if (s.cut && options_.level != ShardLevel::broadcast)
      reduce_scatter(all, own_part(all, s), group_, ReduceKind::average);
    else all_reduce(all, group_, ReduceKind::average);
    return;
  }
  // A unit's gradient is on its way while the next is computed: two are there at once.
  if (!is_tracing()) finish_reductions(s.unit);
  auto new_share = [&](MemoryCategory category) {
    CategoryScope scope(category);
    return empty_in_pool({s.own_end - s.own_begin}, gradient_.dtype, device(), parameters_.options().pool);
  };
  if (parameters_.has_transient_gradient()) {
    Tensor share = new_share(MemoryCategory::gradient);
    reduce_scatter(gradient_.lent(s), share, group_, ReduceKind::average);
    return parameters_.lend_share(s, share);
  }
  Reduction r{&s, {}, 0};
  if (!window_.first) r.share = new_share(MemoryCategory::temporary);
  Tensor to = window_.first ? gradient_.range(s.own_begin, s.own_end) : r.share;
  reduce_scatter(gradient_.lent(s), to, group_, ReduceKind::average);
  r.collectives = collectives_so_far(device());
  reductions_.push_back(r);
  if (is_tracing()) finish_reductions(-1);
}

void Sharding::finish_reductions(int except_unit) {
  while (!reductions_.empty() && reductions_.front().stretch->unit != except_unit) {
    Reduction r = reductions_.front();
    reductions_.pop_front();
    join_communication(device(), r.collectives);
    if (r.share.defined()) add_into(gradient_.range(r.stretch->own_begin, r.stretch->own_end), r.share);
    parameters_.take_back(gradient_, *r.stretch);
  }
}

void Sharding::finish_backward() {
  if (!reducing_) return;
  NoGrad off;
  std::vector<std::string> missing;
  std::vector<int> late;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    int s = stretch_of_[i];
    if (waits_for_[size_t(s)] == 0) continue;
    if (!leaves_[i].leaf->has_grad) missing.push_back(leaves_[i].leaf->name);
    if (late.empty() || late.back() != s) late.push_back(s);
  }
  if (window_.last || gradient_.place != Role::whole) refuse_missing(missing);
  for (int s : late) reduce(parameters_.stretches()[size_t(s)]);  // an earlier micro-batch reached them
  finish_reductions(-1);
  join_communication(device());
  reducing_ = false;
}

void Sharding::refuse_missing(const std::vector<std::string>& names) const {
  check(names.empty(),
        "rank {}: the backward pass gave no gradient to {}; ranks must agree on what they reduce, so freeze what a "
        "model does not use",
        group_.rank(), fmt::join(names, ", "));
}

void Sharding::reduce_all() {
  NoGrad off;
  std::vector<std::string> missing;
  for (const auto& l : leaves_)
    if (!l.leaf->has_grad) missing.push_back(l.leaf->name);
  refuse_missing(missing);
  window_ = {};
  for (const Stretch& s : parameters_.stretches())
    if (s.unit >= 0) reduce(s);
  finish_reductions(-1);
  join_communication(device());
}

void Sharding::average(const Tensor& x) const {
  NoGrad off;
  all_reduce(x, group_, ReduceKind::average);
  join_communication(x.device());
}

// ---- the step ----------------------------------------------------------------------------------------------------

// Every rank fills in the blocks that it owns, zeros are added to them, and all then add up the same numbers in one
// order: the bits of the norm do not depend on the number of ranks.
Tensor Sharding::squares() {
  CategoryScope scope(MemoryCategory::temporary);
  auto blocks = [](int64_t elements) { return (elements + squares_block - 1) / squares_block; };
  int64_t total = 0;
  for (const Stretch& s : parameters_.stretches())
    if (s.unit >= 0) total += blocks(s.used_end - s.begin);
  Tensor sums = zeros({total}, DType::f64, device());
  int64_t first = 0;
  for (const Stretch& s : parameters_.stretches()) {
    if (s.unit < 0) continue;
    int64_t count = blocks(s.used_end - s.begin);
    int64_t from = (s.own_begin - s.begin) / squares_block, to = std::min(count, (s.own_end - s.begin) / squares_block);
    if (from < to && (s.cut || group_.rank() == 0)) {
      Destination d;
      Tensor mine = slice(sums, 0, first + from, to - from);
      d.out[0] = &mine;
      Tensor own = gradient_.range(s.own_begin, s.own_begin + (to - from) * squares_block);
      const Tensor* inputs[] = {&own};
      dispatch_op(ops::sum_squares, inputs, {}, &d);
    }
    first += count;
  }
  all_reduce(sums, group_);
  join_communication(device());
  return sum(sums);
}

void Sharding::step(Optimizer& optimizer) {
  Range range("optimizer", RangeKind::phase);
  NoGrad off;
  stepping_ = true;
  parameters_.allocate_grad();
  optimizer.allocate();
  parameters_.refresh_stale_low_copy();
  optimizer.prepare(optimizer.needs_norm() ? squares() : Tensor());
  for (const Stretch& s : parameters_.stretches()) {
    if (s.unit < 0) continue;
    if (s.own_begin < s.own_end) optimizer.update(s.own_begin, s.own_end);
    if (s.cut) gather_updated(s);
  }
  join_communication(device());
  parameters_.low_copy_is_current();
  note_gathered();
  stepping_ = false;
}

// Of roles that are whole, what others have updated.
void Sharding::gather_updated(const Stretch& s) {
  auto all_of = [&](const Role& role) { return role.range(s.begin, s.end); };
  if (options_.level == ShardLevel::broadcast) {
    broadcast(all_of(master_), group_, s.owner);
    if (copy_) broadcast(all_of(*copy_), group_, s.owner);
  } else if (options_.level != ShardLevel::parameters) {
    Tensor all = all_of(copy_ ? *copy_ : master_);
    all_gather(own_part(all, s), all, group_);
  }
}

// Whole copies follow a master that was changed by something else than a step: all ranks load the same.
void Sharding::refresh() { gather_copies(&gathered_); }

void Sharding::gather_copies(const std::vector<uint32_t>* known) {
  if (!copy_ || copy_->place != Role::whole || master_.place == Role::whole) return;
  NoGrad off;
  for (const Stretch& s : parameters_.stretches()) {
    if (!s.cut) continue;
    if (known && master_.version(parameters_.units()[size_t(s.unit)]) == (*known)[size_t(s.unit)]) continue;
    copy_into(copy_->range(s.own_begin, s.own_end), master_.range(s.own_begin, s.own_end));
    gather_updated(s);
  }
  join_communication(device());
  note_gathered();
}

void Sharding::note_gathered() {
  if (is_tracing()) return;
  gathered_.clear();
  for (const auto& unit : parameters_.units()) gathered_.push_back(master_.version(unit));
}

Tensor Sharding::gathered(const std::string& name, const Parameters::Entry& e) {
  NoGrad off;
  const Role& role = parameters_.role(name);
  const Stretch& s = parameters_.stretch_at(e.offset);
  bool reduced = &role == &gradient_ && s.cut && options_.level >= ShardLevel::optimizer;  // this rank's share alone
  if (!role.lacks(s) && !reduced) return role.view(e);
  const Role& from = role.place == Role::absent ? master_ : role;
  CategoryScope scope(MemoryCategory::temporary);
  Tensor all = empty({s.end - s.begin}, from.dtype, device()), own = from.range(s.own_begin, s.own_end);
  if (options_.level == ShardLevel::broadcast) {
    if (s.owner == group_.rank()) copy_into(all, own);
    broadcast(all, group_, s.owner);
  } else {
    all_gather(own, all, group_);
  }
  join_communication(device());
  return cast(reshape(slice(all, 0, e.offset - s.begin, e.dims.numel()), e.dims), role.dtype);
}

// ---- for loops of one's own --------------------------------------------------------------------------------------

Optimizer& ShardedOptimizer::add(Parameters& parameters, const MakeOptimizer& make, bool loss_scaling) {
  ShardLevel level = parameters.options().shards.level;
  check(
      level == ShardLevel::broadcast || level == ShardLevel::optimizer,
      "ShardedOptimizer: the parameters are of level {}; it takes those of level optimizer, whose gradients a backward "
      "pass leaves whole",
      name_of(level));
  Part part{&parameters, make(parameters, loss_scaling),
            std::make_unique<Sharding>(parameters, group_, ShardOptions{.level = level})};
  part.sharding->gather_copies();  // they may have been loaded since they were made
  return *parts_.emplace_back(std::move(part)).optimizer;
}

void ShardedOptimizer::step(double learning_rate) {
  for (Part& p : parts_) {
    p.optimizer->set_learning_rate(learning_rate);
    p.sharding->reduce_all();
    p.sharding->step(*p.optimizer);
    p.sharding->end_pass();  // what was lent has changed
    p.sharding->begin_pass();
  }
}

void ShardedOptimizer::refresh() {
  for (Part& p : parts_) p.sharding->refresh();
}

void ShardedOptimizer::zero_grad() {
  for (Part& p : parts_) p.parameters->zero_grad();
}

}  // namespace sinter::dist
