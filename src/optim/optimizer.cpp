#include "optim/optimizer.h"

#include <cmath>
#include <numbers>

#include "core/range.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace sinter {

Optimizer::Optimizer(Parameters& parameters, const OptimizerOptions& options, std::vector<std::string> moments)
    : parameters_(parameters), options_(options), moments_(std::move(moments)), learning_rate_(options.learning_rate) {
  check(parameters.trainable_size() > 0, "the optimizer has nothing to train: every parameter is frozen");
  CategoryScope scope(MemoryCategory::optimizer);
  state_ = zeros({step_state_size}, DType::f64, parameters.options().device);
  fill(slice(state_, 0, state_loss_scale, 1), options.loss_scaling ? options.initial_loss_scale : 1);
  fill(slice(state_, 0, state_lr, 1), learning_rate_);
}

Optimizer::~Optimizer() {
  for (size_t i = 0; i < allocated_; ++i)
    for (const Parameters::Role& r : parameters_.roles())
      if (r.name == moments_[i]) {
        parameters_.remove_role(r.name);
        break;
      }
}

void Optimizer::allocate() {
  for (; allocated_ < moments_.size(); ++allocated_)
    parameters_.add_role(moments_[allocated_], parameters_.options().master, MemoryCategory::optimizer);
}

void Optimizer::step(double learning_rate) {
  set_learning_rate(learning_rate);
  step();
}

void Optimizer::set_learning_rate(double learning_rate) {
  Range range("optimizer", RangeKind::phase);
  NoGrad off;
  if (learning_rate != learning_rate_) fill(slice(state_, 0, state_lr, 1), learning_rate_ = learning_rate);
}

void Optimizer::step() {
  Range range("optimizer", RangeKind::phase);
  NoGrad off;
  check(parameters_.options().shards.level == ShardLevel::none,
        "parameters are sharded among {} ranks: an optimizer's own step would update this rank's share alone; step "
        "with Trainer or dist::Sharding, which communicate, or wrap the optimizer in dist::ShardedOptimizer",
        parameters_.options().shards.ranks);
  parameters_.allocate_grad();  // a step without a backward pass finds none
  allocate();
  parameters_.refresh_stale_low_copy();  // or a copy that no update reaches would be called current below
  auto ranges = parameters_.ranges_with_grad();
  CategoryScope scope(MemoryCategory::temporary);
  prepare(needs_norm() ? sum(dispatch(ops::sum_squares, {}, parameters_.grad())[0]) : Tensor());
  for (auto [begin, end] : ranges) update(begin, end);
  parameters_.low_copy_is_current();
}

void Optimizer::prepare(const Tensor& squares) {
  Attrs attrs = Attrs::of(PrepareStepAttrs{.max_norm = options_.max_norm, .dynamic_scale = options_.loss_scaling});
  if (squares.defined()) dispatch(ops::prepare_step, attrs, state_, squares);
  else dispatch(ops::prepare_step, attrs, state_);
}

Tensor Optimizer::loss_scale(DType dtype) const {
  if (!options_.loss_scaling) return {};
  return cast(reshape(slice(state_, 0, state_loss_scale, 1), {}), dtype);
}

std::vector<double> Optimizer::state() const { return to_vector(state_); }

void Optimizer::load_state(const std::vector<double>& state) {
  check(state.size() == step_state_size, "an optimizer's state has {} numbers, not {}", int(step_state_size),
        state.size());
  double scale = state[state_loss_scale];
  check(options_.loss_scaling || scale == 1,
        "the state's loss scale is {}, but this optimizer does not scale its loss; set it to 1 before loading", scale);
  check(std::isfinite(scale) && scale > 0, "the state's loss scale is {}; it must be a positive number", scale);
  write_host(state_, state);
  learning_rate_ = state[state_lr];
}

void Optimizer::run(const OpDef& op, const Attrs& attrs, const std::vector<std::string>& moments, int64_t begin,
                    int64_t end) {
  std::vector<Tensor> inputs;
  auto part = [&](const std::string& role) { return parameters_.role(role).range(begin, end); };
  auto add = [&](const std::string& role) { inputs.push_back(part(role)); };
  add("master");
  add("gradient");
  for (const std::string& m : moments) add(m);
  inputs.push_back(state_);
  if (parameters_.options().compute)
    if (Tensor copy = part("copy"); copy.defined()) inputs.push_back(copy);  // absent: made when it is gathered
  std::vector<const Tensor*> ptrs;
  for (const Tensor& t : inputs) ptrs.push_back(&t);
  parameters_.write_within(begin, end, [&] { dispatch_op(op, ptrs, attrs); });
}

namespace {

template <class Kind, class Options> MakeOptimizer make(const Options& options) {
  return [options](Parameters& parameters, bool loss_scaling) {
    Options o = options;
    o.loss_scaling = loss_scaling;
    return std::make_unique<Kind>(parameters, o);
  };
}

}  // namespace

AdamW::AdamW(Parameters& parameters, const AdamWOptions& o)
    : Optimizer(parameters, o, {"adamw.m", "adamw.v"}), attrs_{o.beta1, o.beta2, o.eps, o.weight_decay} {}

void AdamW::update(int64_t begin, int64_t end) { run(ops::adamw, Attrs::of(attrs_), moments(), begin, end); }

MakeOptimizer make_adamw(const AdamWOptions& options) { return make<AdamW>(options); }

Sgd::Sgd(Parameters& parameters, const SgdOptions& o)
    : Optimizer(parameters, o, o.momentum != 0 ? std::vector<std::string>{"sgd.momentum"} : std::vector<std::string>{}),
      attrs_{o.momentum, o.weight_decay} {}

void Sgd::update(int64_t begin, int64_t end) {
  // Without momentum the kernel never touches its buffer; the gradient stands in for it.
  run(ops::sgd, Attrs::of(attrs_), moments().empty() ? std::vector<std::string>{"gradient"} : moments(), begin, end);
}

MakeOptimizer make_sgd(const SgdOptions& options) { return make<Sgd>(options); }

double cosine_schedule(int64_t step, double peak, double floor, int64_t warmup, int64_t total) {
  check(warmup >= 0 && total >= warmup, "the schedule needs 0 <= warm-up ({}) <= total ({})", warmup, total);
  if (step < warmup) return peak * double(step + 1) / double(warmup);
  if (step >= total) return floor;
  double progress = double(step - warmup) / double(std::max<int64_t>(1, total - warmup));
  return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace sinter
