#include "train/trainer.h"

#include "core/range.h"
#include "ops/ops.h"
#include "train/attention_passes.h"

namespace sinter {

namespace {

// Meta, which predicts, keeps it apart too: which cached block fits depends on what else is in its pool. A GPU's memory
// is communicated wherever it lies.
void* pool_of(const TrainerOptions& o) {
  return o.group && target_of(o.device).type != DeviceType::cuda ? o.group->pool() : nullptr;
}

Parameters::Options parameter_options(const TrainerOptions& o) {
  bool sharded = o.shard.level != ShardLevel::none;
  check(o.group || !sharded, "sharding ({}) is for several ranks: give the trainer their group",
        name_of(o.shard.level));
  return {o.device, o.precision.master, o.precision.compute,
          o.seed,   pool_of(o),         o.group && sharded ? shards_of(o.shard, *o.group) : Parameters::Shards{}};
}

}  // namespace

Trainer::Trainer(const ModelConfig& config, const TrainerOptions& options, const MakeModel& make_model)
    : options_(options), parameters_(parameter_options(options)) {
  validate(config);
  if (options.device != DeviceType::meta) check_supported(options.precision, target_of(options.device));
  if (options_.compiled) {
    options_.compiled = with_attention(*options_.compiled, config.attention);
    // Gradients and parameters on their way between ranks are among a compiled step's own buffers.
    arena_ = std::make_shared<compile::Arena>(
        options.device, options.shard.level >= ShardLevel::gradients ? pool_of(options) : nullptr);
  }
  Range range("init", RangeKind::phase);
  model_ = make_model(config, parameters_);
  parameters_.allocate();
  if (options.shard.level != ShardLevel::none)
    parallel_ = std::make_unique<dist::Sharding>(parameters_, *options.group, options.shard);
  else if (options.group)
    parallel_ = std::make_unique<dist::DataParallel>(parameters_, *options.group, options.data_parallel);
}

Tensor Trainer::forward(Pass pass, const Batch& batch) const {
  Range range("forward", RangeKind::phase);
  Autocast precision(options_.precision.compute);
  Scoped math(context().math, options_.precision.math);
  Tensor logits = model_->logits(batch.tokens());
  if (pass == Pass::forward) return logits;
  Range loss_range("loss");
  return cross_entropy(logits, batch.targets());
}

void Trainer::backward(const Tensor& loss, Pass pass, Part part) {
  Range range("backward", RangeKind::phase);
  Scoped math(context().math, options_.precision.math);
  Tensor seed = options_.precision.loss_scaling ? optimizer().loss_scale(loss.dtype()) : Tensor();
  if (part != only) seed = seed.defined() ? mul(seed, share_) : share_;
  if (parallel_)
    parallel_->begin_backward(
        {part == only || part == first, part == only || part == last, part == only && pass == Pass::step});
  sinter::backward(loss, seed);
  if (parallel_) parallel_->finish_backward();
}

// What is traced, and what eager mode runs. Gradients are forgotten at the beginning, so that a trace holds whatever
// was run before it, and after the update, so that it need not store them. Micro-batches add their losses up outside
// the arena, which the next one overwrites.
Tensor Trainer::submit(Pass pass, Part part, const Batch& batch, const Mark& mark) {
  auto done = [&](Phase phase) {
    if (mark) mark(phase);
  };
  bool trains = pass == Pass::forward_backward || pass == Pass::step;
  struct Around {
    dist::Parallel* ranks;
    explicit Around(dist::Parallel* r) : ranks(r) {
      if (ranks) ranks->begin_pass();
    }
    ~Around() {
      if (ranks) ranks->end_pass();
    }
  } around(parallel_.get());
  if (trains && (part == only || part == first)) parameters_.zero_grad();
  Tensor result;
  {
    Scoped tape(context().grad_enabled, trains);
    result = forward(pass, batch);
  }
  done(Phase::forward);
  if (trains) {
    backward(result, pass, part);
    done(Phase::backward);
  }
  if (part != only) {
    NoGrad off;
    add_into(loss_sum_, mul(result.detach(), share_));
  }
  if (parallel_ && pass != Pass::forward && (part == only || part == last))
    parallel_->average(part == only ? result.detach() : loss_sum_);
  if (pass == Pass::step && (part == only || part == last)) {
    if (parallel_) parallel_->step(optimizer());
    else optimizer().step();
    parameters_.zero_grad();
    done(Phase::optimizer);
  }
  return part == only ? result.detach() : loss_sum_;
}

// A trace can make nothing that outlives it, but gradients. The 16-bit copies are refreshed around it, or
// every replay would do it again.
void Trainer::make_what_lasts(Pass pass) {
  if (pass == Pass::step) optimizer().allocate();
  else if (pass == Pass::forward_backward && options_.precision.loss_scaling) optimizer();  // its state holds the scale
  parameters_.refresh_stale_low_copy();
}

Tensor Trainer::run(Pass pass, Part part, const Batch& batch, const Mark& mark) {
  if (parallel_) {
    parallel_->group().throw_if_failed();
    parallel_->refresh();
  }
  if (!options_.compiled) return submit(pass, part, batch, mark);
  make_what_lasts(pass);
  auto& compiled = compiled_[size_t(pass)][part];
  if (!compiled) {
    auto traced = [this, pass, part](const std::vector<Tensor>& in) {
      return std::vector{submit(pass, part, {in[0]}, {})};
    };
    compiled = std::make_unique<compile::Compiled>(traced, options_.device, *options_.compiled, arena_);
  }
  Tensor result = (*compiled)({batch.ids})[0];
  if (pass == Pass::step) {  // a replay does not say so
    parameters_.low_copy_is_current();
    if (parallel_) parallel_->was_replayed();
  }
  return result;
}

Tensor Trainer::run(Pass pass, std::span<const Batch> batches, const Mark& mark) {
  check(!batches.empty(), "a pass needs at least one micro-batch");
  std::optional<Range> range;
  if (pass == Pass::step) range.emplace("step", RangeKind::module, Place::here());
  bool whole = options_.compiled || batches.size() > 1;
  Mark phases = whole ? Mark() : mark;
  Tensor result;
  if (batches.size() == 1 || pass == Pass::forward) {
    for (const Batch& b : batches) result = run(pass, only, b, phases);
  } else {
    if (!share_.defined()) {
      share_ = empty({}, options_.precision.master, options_.device);
      loss_sum_ = empty({}, options_.precision.master, options_.device);
    }
    fill(share_, 1 / double(batches.size()));
    fill(loss_sum_, 0);
    for (const Batch& b : batches) {
      bool ends = &b == &batches.back() && (pass == Pass::step || parallel_),
           begins = &b == &batches.front() && pass != Pass::evaluate;
      result = run(pass, ends ? last : begins ? first : later, b, phases);
    }
  }
  if (mark && whole) mark(Phase::whole);
  return result;
}

Tensor Trainer::run_eagerly(Pass pass, const Batch& batch) {
  if (parallel_) parallel_->refresh();
  return submit(pass, only, batch, {});
}

double Trainer::step(std::span<const Batch> micro_batches, double learning_rate) {
  optimizer().set_learning_rate(learning_rate);
  double loss = item(run(Pass::step, micro_batches));
  if (parallel_) parallel_->group().throw_if_failed();
  return loss;
}

compile::Graph Trainer::trace(Pass pass, const Batch& batch) {
  std::optional<Range> range;
  if (pass == Pass::step) range.emplace("step", RangeKind::module, Place::here());
  make_what_lasts(pass);
  auto traced = [&](const std::vector<Tensor>& in) { return std::vector{submit(pass, only, {in[0]}, {})}; };
  return compile::trace(traced, {batch.ids}, options_.device);
}

std::vector<Trainer::Replayed> Trainer::replayed() const {
  static const char* const names[part_count] = {"", "first micro-batch", "later micro-batches", "last micro-batch"};
  std::vector<Replayed> all;
  for (const auto& parts : compiled_)
    for (size_t i = 0; i < part_count; ++i)
      if (parts[i]) all.push_back({names[i], parts[i].get()});
  return all;
}

Optimizer& Trainer::optimizer() {
  if (!optimizer_) optimizer_ = options_.optimizer(parameters_, options_.precision.loss_scaling);
  return *optimizer_;
}

}  // namespace sinter
