#include "lab/train/train_case.h"

#include <cmath>

#include "backend/cpu/thread_pool.h"
#include "core/clock.h"
#include "lab/imagined_ranks.h"
#include "lab/measure.h"
#include "ops/ops.h"
#include "plan/peaks.h"
#include "system/signals.h"
#include "system/units.h"
#include "train/not_finite.h"

namespace sinter::lab {
namespace {

std::string duration_text(double seconds) {
  auto s = int64_t(std::llround(seconds));
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

}  // namespace

double TrainPlan::learning_rate(int64_t step) const {
  double peak = run.adamw.learning_rate;
  if (schedule == "cosine") return cosine_schedule(step, peak, min_lr, warmup_steps, schedule_steps);
  return step < warmup_steps ? peak * double(step + 1) / double(warmup_steps) : peak;
}

int64_t TrainPlan::evaluated(int64_t available) const {
  return std::min(evaluate_batches, available / shape.global()) * shape.global();
}

// What lives as long as the steps are taken.
class TrainCase::Loop {
 public:
  Loop(TrainCase& run, Progress& progress)
      : c_(run),
        plan_(run.plan_),
        progress_(progress),
        model_(plan_.run.model),
        device_(plan_.run.device),
        trainer_(model_, plan_.run.trainer_options(device_), run.make_model_),
        batches_(run.data_.windows.train, plan_.run.seed, plan_.shape, model_.vocab, device_, plan_.first_step()),
        readings_(device_) {
    if (plan_.from) load_checkpoint(*plan_.from, trainer_);
    if (!plan_.out.empty())
      checkpoints_.emplace(trainer_,
                           CheckpointOptions{plan_.out, int(plan_.keep), plan_.from ? plan_.from->folder : ""});
    if (c_.writes()) log_.emplace(plan_.log, plan_.log_after);
  }

  void steps() {
    begin_ = steady_ns();
    readings_.restart();
    for (int64_t step = plan_.first_step(); step < plan_.run.steps && !stop_; ++step) {
      submit(step);
      if (readings_.under_way() > 1) finish(readings_.take());
      bool last = step + 1 == plan_.run.steps;
      // What follows a step, or ends with it, knows its numbers.
      bool saves = checkpoints_ && (last || comes_after(step, plan_.checkpoint_every));
      if (stop_ || last || saves || comes_after(step, plan_.evaluate_every)) finish(readings_.take());
      if (saves || (checkpoints_ && stop_)) save(step + 1);
      if (checkpoints_) tell(checkpoints_->poll());
    }
    if (checkpoints_) tell(checkpoints_->wait());
    if (!last_error_.empty()) fail_with(ErrorKind::other, "the last checkpoint could not be saved: {}", last_error_);
    synchronize(device_);
    result().seconds = double(steady_ns() - begin_) / 1e9;
    result().peak_bytes = allocator_of(device_).stats().peak_allocated;
    if (!step_seconds_.empty()) {
      double median = statistics_of(step_seconds_).median;
      result().tokens_per_s = double(tokens_a_step()) / median;
      result().mfu = mfu(median);
    }
  }

 private:
  TrainResult& result() { return c_.result_; }
  ProcessGroup* group() const { return plan_.run.group; }
  int64_t tokens_a_step() const { return plan_.shape.global() * model_.ctx; }
  static bool comes_after(int64_t step, int64_t every) { return every > 0 && (step + 1) % every == 0; }

  void submit(int64_t step) {
    if (c_.world_) c_.world_->begin_step(step + 1);
    trainer_.optimizer().set_learning_rate(plan_.learning_rate(step));
    Tensor loss = trainer_.run(Pass::step, batches_.next());
    readings_.submit(step, loss, trainer_.optimizer(), interrupted(), group());
  }

  // A step is over; by all ranks, which read the same.
  void finish(const Reading& r) {
    if (plan_.run.group) plan_.run.group->throw_if_failed();
    if (r.step > plan_.first_step()) step_seconds_.push_back(r.seconds);  // the first compiles
    if (r.stop) stop_ = true;
    if (!is_finite(r)) not_finite(r);
    TrainResult& all = result();
    all.steps_done = r.step + 1;
    all.tokens += tokens_a_step();
    all.epochs = batches_.epochs(r.step + 1);
    all.skipped = r.skipped;
    if (!all.first_loss) all.first_loss = r.loss;
    all.loss = r.loss;
    Json line = {{"step", r.step + 1}, {"loss", r.loss}, {"lr", plan_.learning_rate(r.step)}};
    if (trainer_.optimizer().needs_norm()) line["gradient_norm"] = r.gradient_norm;
    line["tokens_per_s"] = double(tokens_a_step()) / r.seconds;
    bool last = r.step + 1 == plan_.run.steps;
    bool evaluates = (comes_after(r.step, plan_.evaluate_every) || last || stop_) && readings_.under_way() == 0;
    if (evaluates && plan_.evaluated(validation().count()) > 0) {
      line["validation_loss"] = evaluate();
      all.validation_loss = line["validation_loss"].get<double>();
      readings_.restart();
    }
    line["elapsed_s"] = (log_ ? log_->elapsed_s() : 0) + double(steady_ns() - begin_) / 1e9;
    if (log_)
      if (std::string trouble = log_->add(line); !trouble.empty()) progress_.done("warning: " + trouble);
    add_to_curve(line);
    tell(line, r.seconds);
  }

  static bool is_finite(const Reading& r) { return std::isfinite(r.loss) && std::isfinite(r.gradient_norm); }

  // Loss scaling expects gradients that are not, and has skipped the update.
  void not_finite(const Reading& r) {
    bool expected = std::isfinite(r.loss) && plan_.run.precision.loss_scaling;
    if (expected || plan_.skip_not_finite) return;
    if (checkpoints_) tell(checkpoints_->wait());  // an earlier one may be on its way
    progress_.now("looking for the first number that is not finite");
    std::string where = anywhere(first_not_finite(trainer_, batches_.of(r.step)));
    if (where.empty()) where = "computed again, that step was finite: suspect the machine";
    fail_with(ErrorKind::numeric,
              "step {}: the {} is {}; {}. Nothing of this step was saved. A lower --lr or more --warmup-steps may keep "
              "it finite",
              r.step + 1, std::isfinite(r.loss) ? "gradient's norm" : "loss",
              significant(std::isfinite(r.loss) ? r.gradient_norm : r.loss, 3), where);
  }

  // What the first rank that has found something says.
  std::string anywhere(const std::string& found) {
    if (!c_.world_) return found.empty() ? "" : "first comes " + found;
    return first_of_all(*c_.world_,
                        found.empty() ? "" : fmt::format("on rank {} first comes {}", c_.world_->rank(), found));
  }

  // A finite loss says nothing of the update that followed it.
  void save(int64_t step) {
    const Parameters& parameters = trainer_.parameters();
    std::string found = parameters_are_finite(parameters) ? "" : first_not_finite(parameters);
    if (std::string where = anywhere(found); !where.empty()) {
      tell(checkpoints_->wait());
      fail_with(
          ErrorKind::numeric,
          "step {}: its update has made numbers that are not finite; {}. Nothing of this step was saved. --clip 1 "
          "holds such updates back, and a lower --lr may avoid them",
          step, where);
    }
    progress_.now(fmt::format("saving step {}", step));
    checkpoints_->save(step, plan_.config);
    readings_.restart();
  }

  void tell(const std::vector<SaveResult>& saves) {
    for (const SaveResult& s : saves) {
      Json j = {{"step", s.step}, {"bytes", s.bytes}, {"stall_ms", s.stall_ms}, {"write_ms", s.write_ms}};
      if (!s.error.empty()) j["error"] = s.error;
      result().saves.push_back(j);
      last_error_ = s.error;
      if (!s.error.empty()) progress_.done(fmt::format("warning: step {} could not be saved: {}", s.step, s.error));
      else
        progress_.done(fmt::format(
            "saved step {} in {}: {} from this rank; training stood still for {} ms, and the rest "
            "took {} ms beside it",
            s.step, plan_.out, bytes_text(double(s.bytes)), significant(s.stall_ms, 3), significant(s.write_ms, 3)));
    }
  }

  const Windows& validation() const { return c_.data_.windows.validation; }

  // The mean over the same sequences on any number of ranks, each time; all have the same number of tokens.
  double evaluate() {
    const BatchShape& shape = plan_.shape;
    int64_t all = plan_.evaluated(validation().count());
    double sum = 0;
    for (int64_t first = 0; first < all; first += shape.global())
      for (int64_t micro = 0; micro < shape.accumulate; ++micro) {
        std::vector<int64_t> which;  // spread evenly over those there are
        for (int64_t i = 0; i < shape.batch; ++i)
          which.push_back((first + shape.first(micro) + i) * validation().count() / all);
        sum += item(trainer_.run(Pass::evaluate, batch_of(validation(), which, model_.vocab, device_)));
      }
    int64_t passes = all / shape.global() * shape.accumulate;
    if (plan_.run.group) plan_.run.group->throw_if_failed();  // the losses of a device whose ranks have been let go
    return sum / double(passes);
  }

  void add_to_curve(const Json& line) {
    Curve& c = result().curve;
    auto step = line["step"].get<int64_t>();
    if (std::isfinite(*result().loss)) c.steps.push_back(step), c.loss.push_back(*result().loss);
    if (line.contains("validation_loss"))
      c.validation_steps.push_back(step), c.validation_loss.push_back(line["validation_loss"].get<double>());
  }

  std::optional<double> mfu(double seconds) const {
    if (!peak_) return {};
    return c_.need_.flops / seconds / *peak_;
  }

  void tell(const Json& line, double seconds) {
    int64_t step = line["step"].get<int64_t>(), all = plan_.run.steps;
    std::string text = fmt::format("step {}/{}, loss {}", step, all, significant(*result().loss, 4));
    if (line.contains("validation_loss"))
      text += fmt::format(", validation {}", significant(line["validation_loss"].get<double>(), 4));
    if (line.contains("gradient_norm"))
      text += fmt::format(", gradient {}", significant(line["gradient_norm"].get<double>(), 3));
    text += fmt::format(", {} tokens/s", grouped(std::llround(line["tokens_per_s"].get<double>())));
    if (std::optional<double> m = mfu(seconds)) text += fmt::format(", MFU {}", percent_text(*m));
    text += fmt::format(", {}", bytes_text(double(allocator_of(device_).stats().allocated)));
    double each = double(steady_ns() - begin_) / 1e9 / double(step - plan_.first_step());
    double left = each * double(all - step);
    if (step < all) text += fmt::format(", {} left", duration_text(left));
    int64_t now_and_then = std::max<int64_t>(1, all / 10);
    if (line.contains("validation_loss") || step == plan_.first_step() + 1 || step % now_and_then == 0)
      progress_.done(text);
    else progress_.now(text);
  }

  TrainCase& c_;
  const TrainPlan& plan_;
  Progress& progress_;
  const ModelConfig& model_;
  DeviceType device_;
  Trainer trainer_;
  TokenBatches batches_;
  StepReadings readings_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<TrainingLog> log_;  // rank 0 has it
  std::optional<double> peak_ =     // of products, if it was measured here before
      plan::Peaks(device_).known_product(plan_.run.precision.name);
  std::vector<double> step_seconds_;
  int64_t begin_ = 0;
  bool stop_ = false;
  std::string last_error_;  // of the last save
};

TrainCase::TrainCase(TrainPlan plan, TrainData& data, dist::World* world, const MakeModel& make_model)
    : plan_(std::move(plan)), data_(data), world_(world), make_model_(make_model) {
  result_.run = plan_.run;
  result_.ranks = plan_.shape.ranks, result_.threads = cpu::threads();
  result_.global_batch = plan_.shape.global();
  result_.data = data.json();
  result_.resumed_from = plan_.first_step();
  if (!plan_.out.empty()) result_.out = plan_.out;
}

std::string TrainCase::text() const { return plan_.run.text() + ranks_text(plan_.run); }

namespace {

plan::Prediction need_of(const TrainPlan& plan, const MakeModel& make_model) {
  plan::Prediction need = plan::predict(plan.run, target_of(plan.run.device), make_model);
  if (!plan.out.empty() && plan.run.device == DeviceType::cpu) {
    MetaTarget target(target_of(plan.run.device));
    Trainer counted(plan.run.model, plan.run.trainer_options(DeviceType::meta), make_model);
    int64_t staged = checkpoint_bytes(counted);  // where a checkpoint waits to be written, from beginning to end
    for (MemoryStats* s : {&need.walk.first, &need.walk.steady})
      s->peak_allocated += staged, s->peak_reserved += staged;
  }
  return need;
}

plan::Fit fit_of(const TrainPlan& plan, const plan::Prediction& need, dist::World* world) {
  if (world) return fit_on(*world, plan.shape.ranks, plan.run.device, need);
  return plan::fit_of(need, allocator_of(plan.run.device).free_bytes());
}

}  // namespace

void choose_micro_batch(TrainPlan& plan, dist::World* world, const MakeModel& make_model) {
  int64_t mine = plan.shape.global() / plan.shape.ranks;
  plan::Fit fit;
  auto fits = [&](int64_t batch) {
    plan.run.batch = plan.shape.batch = batch;
    plan.run.accumulate = plan.shape.accumulate = mine / batch;
    fit = fit_of(plan, need_of(plan, make_model), world);
    return fit.fits;
  };
  for (int64_t batch = mine; batch >= 1; --batch)
    if (mine % batch == 0 && fits(batch)) return;
  if (plan.run.mode != Mode::compiled || plan.run.memory_budget > 0) return;
  int64_t free = fit.free_bytes;  // of the rank that has least
  if (world)
    for (const std::string& theirs : from_all(*world, std::to_string(free)))
      free = std::min<int64_t>(free, std::stoll(theirs));
  plan.run.memory_budget = double(free) / double(1 << 30);
  if (!fits(1)) plan.run.memory_budget = 0;
}

plan::Fit TrainCase::fit() {
  need_ = need_of(plan_, make_model_);
  result_.predicted_peak_bytes = need_.bytes(), result_.parameters = need_.walk.parameters;
  return fit_of(plan_, need_, world_);
}

Json TrainCase::does_not_fit(const std::string& reason, int64_t) {
  result_.status = "oom", result_.reason = reason;
  return result_;
}

bool TrainCase::run(const Turn&, Progress& progress) {
  try {
    Loop(*this, progress).steps();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::numeric) result_.status = "not finite", result_.reason = e.what();
    // The others are in collectives that this rank will not come to: nobody can go on.
    if (e.kind() == ErrorKind::memory && world_) end_rank(e);
    throw;
  }
  if (result_.steps_done < plan_.run.steps) {
    result_.status = "interrupted";
    result_.reason = fmt::format("stopped after {} of {} steps", result_.steps_done, plan_.run.steps);
    if (!plan_.out.empty()) result_.reason += fmt::format("; go on with sinter train --resume {}", plan_.out);
  }
  return true;
}

Json TrainCase::rows() {
  if (result_.steps_done == 0) return Json::array();
  TrainResult shown = result_;
  shown.curve = thinned(shown.curve, 500);
  return Json::array({Json(shown)});
}

std::string TrainCase::outcome(const Json& r) const {
  if (r["status"] == "oom") return Case::outcome(r);
  std::string how = r["status"] == "ok"            ? "trained"
                    : r["status"] == "interrupted" ? r["reason"].get<std::string>()
                                                   : "";
  return how.empty() ? "" : fmt::format("{}, in {}", how, duration_text(r["seconds"].get<double>()));
}

}  // namespace sinter::lab
