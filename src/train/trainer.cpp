#include "train/trainer.h"

#include "core/range.h"
#include "ops/ops.h"
#include "train/attention_passes.h"

namespace sinter {

Precision precision_named(const std::string& name) {
  if (name == "fp32") return {name, DType::f32, {}, MathMode::full, false};
  if (name == "tf32") return {name, DType::f32, {}, MathMode::tf32, false};
  if (name == "bf16") return {name, DType::f32, DType::bf16, MathMode::full, false};
  if (name == "fp16") return {name, DType::f32, DType::f16, MathMode::full, true};
  if (name == "fp64") return {name, DType::f64, {}, MathMode::full, false};
  fail_with(ErrorKind::usage, "--dtype {}: unknown; choose fp32, tf32, bf16 or fp16", name);
}

void check_supported(const Precision& p, DeviceType device) {
  if (device == DeviceType::cpu) {
    check(p.math != MathMode::tf32, "--dtype tf32: only CUDA tensor cores have it; use --dtype fp32 on the CPU");
    return;
  }
  if (device != DeviceType::cuda) return;
  check(p.master != DType::f64, "--dtype fp64: only on the CPU, for checks");
  int cc = backend_of(device).info().compute_capability;
  check(p.compute != DType::bf16 || cc >= 80,
        "--dtype bf16: this GPU (compute capability {}.{}) has no bf16; use --dtype fp16", cc / 10, cc % 10);
  check(p.math != MathMode::tf32 || cc >= 80,
        "--dtype tf32: this GPU (compute capability {}.{}) has no tf32; use --dtype fp32", cc / 10, cc % 10);
}

Batch random_batch(int64_t batch, int64_t ctx, int64_t vocab, uint64_t seed, DeviceType device) {
  check(batch > 0, "--batch must be at least 1, not {}", batch);
  check(ctx > 0, "--ctx must be at least 1, not {}", ctx);
  Range range("batch");
  Batch b{empty({batch, ctx}, DType::i64, device), empty({batch, ctx}, DType::i64, device)};
  fill_integers(b.tokens, seed, 1, 0, vocab);
  fill_integers(b.targets, seed, 2, 0, vocab);
  return b;
}

Batch batch_from_host(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets, int64_t batch,
                      int64_t ctx, int64_t vocab, DeviceType device) {
  for (auto* ids : {&tokens, &targets})
    for (int64_t id : *ids)
      check(id >= 0 && id < vocab, "token id {} is outside the vocabulary of {}; use --vocab {} or more", id, vocab,
            id + 1);
  return {from_vector(tokens, {batch, ctx}, device), from_vector(targets, {batch, ctx}, device)};
}

Trainer::Trainer(const ModelConfig& config, const TrainerOptions& options, const MakeModel& make_model)
    : options_(options),
      parameters_({options.device, options.precision.master, options.precision.compute, options.seed}) {
  validate(config);
  check_supported(options.precision, options.device);
  options_.adamw.loss_scaling = options.precision.loss_scaling;
  if (options_.compiled) options_.compiled = with_attention(*options_.compiled, config.attention);
  Range range("init", RangeKind::phase);
  model_ = make_model(config, parameters_);
  parameters_.allocate();
}

Tensor Trainer::logits(const Batch& batch) const {
  Range range("forward", RangeKind::phase);
  NoGrad off;
  Autocast precision(options_.precision.compute);
  Scoped math(context().math, options_.precision.math);
  return model_->logits(batch.tokens);
}

Tensor Trainer::loss(const Batch& batch) const {
  Range range("forward", RangeKind::phase);
  Autocast precision(options_.precision.compute);
  Scoped math(context().math, options_.precision.math);
  Tensor logits = model_->logits(batch.tokens);
  Range loss_range("loss");
  return cross_entropy(logits, batch.targets);
}

void Trainer::backward(const Tensor& loss) { backward(loss, {}); }

void Trainer::backward(const Tensor& loss, const Tensor& share) {
  Range range("backward", RangeKind::phase);
  Scoped math(context().math, options_.precision.math);
  Tensor seed = options_.precision.loss_scaling ? optimizer().loss_scale(loss.dtype()) : Tensor();
  if (share.defined()) seed = seed.defined() ? mul(seed, share) : share;
  sinter::backward(loss, seed);
}

void Trainer::optimizer_step(double learning_rate) {
  optimizer().set_learning_rate(learning_rate);
  update();
}

void Trainer::update() {
  optimizer().step();
  parameters_.zero_grad();
}

void Trainer::before_trace(bool with_optimizer) {
  if (with_optimizer) optimizer().allocate();
  else if (options_.precision.loss_scaling) optimizer();  // its state holds the scale
  before_replay();                                        // or the trace would refresh the copies every time
}

double Trainer::step(const Batch& batch, double learning_rate) { return step(std::span(&batch, 1), learning_rate); }

double Trainer::step(std::span<const Batch> micro_batches, double learning_rate) {
  return item(submit_step(micro_batches, learning_rate));
}

Tensor Trainer::submit_step(std::span<const Batch> batches, double learning_rate) {
  check(!batches.empty(), "a step needs at least one micro-batch");
  Range range("step");
  optimizer().set_learning_rate(learning_rate);
  if (batches.size() == 1) return run(whole, batches[0]);
  if (!share_.defined()) {
    share_ = empty({}, options_.precision.master, options_.device);
    loss_sum_ = empty({}, options_.precision.master, options_.device);
  }
  fill(share_, 1 / double(batches.size()));
  fill(loss_sum_, 0);
  for (const Batch& b : batches.first(batches.size() - 1)) run(accumulate, b);
  return run(finish, batches.back());
}

Tensor Trainer::run(Part part, const Batch& batch) {
  std::vector<Tensor> result;
  if (!options_.compiled) {
    result = traced(part, batch);
  } else {
    if (!compiled_[part]) {
      before_trace(true);
      if (!arena_) arena_ = std::make_shared<compile::Arena>(options_.device);
      auto step = [this, part](const std::vector<Tensor>& in) { return traced(part, {in[0], in[1]}); };
      compiled_[part] = std::make_unique<compile::Compiled>(step, options_.device, *options_.compiled, arena_);
    }
    before_replay();
    result = (*compiled_[part])({batch.tokens, batch.targets});
    after_replay();
  }
  return part == whole ? result[0] : loss_sum_;
}

// What is traced, and what eager mode runs. Micro-batches add their losses up outside the arena, which the next one overwrites.
std::vector<Tensor> Trainer::traced(Part part, const Batch& batch) {
  Tensor l = loss(batch);
  backward(l, part == whole ? Tensor() : share_);
  if (part != whole) {
    NoGrad off;
    add_into(loss_sum_, mul(l.detach(), share_));
  }
  if (part != accumulate) update();
  return part == whole ? std::vector{l.detach()} : std::vector<Tensor>{};
}

std::vector<const compile::Compiled*> Trainer::compiled_steps() const {
  std::vector<const compile::Compiled*> steps;
  for (const auto& c : compiled_)
    if (c) steps.push_back(c.get());
  return steps;
}

AdamW& Trainer::optimizer() {
  if (!optimizer_) optimizer_ = std::make_unique<AdamW>(parameters_, options_.adamw);
  return *optimizer_;
}

}  // namespace sinter
