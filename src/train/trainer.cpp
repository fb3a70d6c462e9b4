#include "train/trainer.h"

#include "ops/ops.h"
#include "profile/range.h"
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

void Trainer::backward(const Tensor& loss) {
  Range range("backward", RangeKind::phase);
  Scoped math(context().math, options_.precision.math);
  Tensor seed = options_.precision.loss_scaling ? optimizer().loss_scale(loss.dtype()) : Tensor();
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
  parameters_.allocate_grad();
  before_replay();  // or the trace would refresh the copies every time
}

double Trainer::step(const Batch& batch, double learning_rate) {
  Range range("step");
  auto whole = [this](const std::vector<Tensor>& in) {
    Tensor l = loss({in[0], in[1]});
    backward(l);
    update();
    return std::vector{l.detach()};
  };
  optimizer().set_learning_rate(learning_rate);
  if (!options_.compiled) return item(whole({batch.tokens, batch.targets})[0]);
  if (!compiled_) {
    before_trace(true);
    compiled_ = std::make_unique<compile::Compiled>(whole, options_.device, *options_.compiled);
  }
  before_replay();
  Tensor l = (*compiled_)({batch.tokens, batch.targets})[0];
  after_replay();
  return item(l);
}

AdamW& Trainer::optimizer() {
  if (!optimizer_) optimizer_ = std::make_unique<AdamW>(parameters_, options_.adamw);
  return *optimizer_;
}

}  // namespace sinter
