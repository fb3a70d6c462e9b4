#include "lab/memory/memory_model.h"

#include "core/check.h"
#include "core/range.h"
#include "lab/driver.h"
#include "lab/memory/result.h"
#include "lab/tuning.h"
#include "plan/fit.h"
#include "plan/gpus.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::vector<PhaseMemory> phases_of(const plan::Walk& run) {
  std::vector<PhaseMemory> rows;
  for (const plan::PhaseUsage& p : plan::usage_by_phase(run))
    rows.push_back({p.name, p.peak.bytes, categories_json(p.peak.by), p.end.bytes, categories_json(p.end.by)});
  return rows;
}

std::vector<LargestRow> largest_of(const plan::Walk& run, int64_t most) {
  std::vector<LargestRow> rows;
  for (const plan::HeldAtPeak& h : plan::held_at_peak(run)) {
    if (int64_t(rows.size()) == most) break;
    rows.push_back({h.bytes, h.count, name_of(h.category), h.tensor, h.range, h.source});
  }
  return rows;
}

// How many ranks at least, a power of two, share it so that it fits; by card, nothing where so many are not enough.
Json ranks_needed(RunConfig c, const MakeModel& make_model) {
  constexpr int64_t most = 1024;
  Json needed = Json::object();
  for (const plan::Gpu* card : plan::known_cards()) {
    int64_t ranks = 1;
    for (; ranks <= most; ranks *= 2) {
      c.group = imagined_group(ranks);
      if (plan::fits(c, card->info(), make_model)) break;
    }
    needed[card->card] = ranks <= most ? Json(ranks) : Json();
  }
  return needed;
}

// Which cards it fits on, each by a prediction for that card, and what would make it fit on one: the one named, the one
// here, or else the largest it does not fit on.
CardsResult cards_of(const MeasuredRun& c, const plan::Prediction& need, const std::string& wanted,
                     const MakeModel& make_model) {
  CardsResult r;
  r.device_bytes = plan::device_need(need);
  RunConfig asked = c;  // each card has its own answer to `auto`
  asked.model.attention.kind = c.wanted;
  std::optional<DeviceInfo> card;
  if (!wanted.empty()) card = plan::card_named(wanted).info();
  else if (cuda_backend()) card = cuda_backend()->info(), card->name = "this GPU";
  for (const plan::Gpu* known : plan::known_cards()) {
    DeviceInfo info = known->info();
    bool ok = plan::fits(asked, info, make_model);
    std::string name = known->card;
    if (std::string lacks = plan::missing_on(info, asked); !lacks.empty()) name += " (has no " + lacks + ")";
    (ok ? r.fits : r.does_not_fit).push_back(name);
    if (!ok && wanted.empty() && !cuda_backend()) card = info;
  }
  if (c.group && c.shard.level != ShardLevel::none) r.ranks_needed = ranks_needed(asked, make_model);
  if (!card) return r;
  r.card = card->name;
  r.card_bytes = card->memory_bytes;
  r.card_fits = plan::fits(asked, *card, make_model);
  if (!*r.card_fits) {
    std::string change = plan::cheapest_change(asked, *card, make_model);
    if (!change.empty()) r.change = change;
  }
  return r;
}

class MemoryCase : public Case {
 public:
  // The snapshot is handed out, not written: a full disk must not cost the measurement.
  MemoryCase(const MeasuredRun& config, const DeviceInfo& on, const MemoryOptions& options, bool alone,
             const MakeModel& make_model, std::string& snapshot)
      : config_(config), on_(on), options_(options), alone_(alone), make_model_(make_model), snapshot_(snapshot) {}

  std::string text() const override { return config_.text() + ranks_text(config_); }
  // What does not fit is predicted instead, so that people see why.
  bool run(const Turn&, Progress&) override {
    plan::Prediction need = plan::predict(config_, on_, make_model_);
    plan::Fit fit{need.refused.empty(), 0, need.refused, ""};
    if (!options_.predict) fit = plan::fit_of(need, allocator_of(config_.device).free_bytes());
    bool dry = options_.predict || !fit.fits;
    restart_product_tuning();
    std::optional<plan::Walk> measured;
    if (!dry) measured = plan::walk(config_, make_model_);
    const plan::Walk& walk = measured ? *measured : need.walk;
    if (walk.interrupted) return false;
    MemoryResult r = result_of(walk, need, dry);
    if (!dry) r.tuning = tuning_of(product_tuning());
    if (!fit.fits) r.status = "oom", r.reason = fit.reason;
    if (!dry && walk.out_of_memory.empty()) add_prediction(r, walk, need);
    if (alone_) r.timeline = timeline_json(walk, config_, on_.name, dry);
    result_ = r;
    if (!options_.snapshot.empty())
      snapshot_ = options_.snapshot.ends_with(".pickle") ? to_pickle(walk.memory) : to_json(walk.memory);
    return true;
  }
  Json rows() override { return result_.is_null() ? Json::array() : Json::array({result_}); }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return alone_ ? "" : Case::outcome(r);
    std::string tuned = tuning_text(r);
    return alone_ ? tuned : "peak " + bytes_text(r["peak_bytes"].get<double>()) + (tuned.empty() ? "" : "; " + tuned);
  }

 private:
  MemoryResult result_of(const plan::Walk& walk, const plan::Prediction& need, bool predicted) const {
    const MeasuredRun& c = config_;
    plan::Usage peak = plan::peak_of(plan::usage_by_phase(walk));
    MemoryResult r;
    r.config = config_of(c);
    r.config.update(ranks_json(c));
    if (!walk.out_of_memory.empty()) r.status = "oom", r.reason = walk.out_of_memory;
    r.predicted = predicted;
    r.predicted_for = on_.name;
    r.attention_why = c.attention_why;
    r.maths = maths_text(c.precision);
    r.parameters = need.walk.parameters;
    r.phases = phases_of(walk);
    r.peak_bytes = peak.bytes;
    r.peak_by = categories_json(peak.by);
    r.reserved_bytes = plan::peak_reserved(walk);
    r.residual_bytes = c.batch * c.model.ctx * c.model.d_model * 4;
    r.largest = largest_of(walk, options_.largest);
    for (auto [range, bytes] : walk.leaks) r.leaks.push_back({range_of(range).path(), bytes});
    if (c.device == DeviceType::cuda) r.cards = cards_of(c, need, options_.card, make_model_);
    return r;
  }

  // What was predicted, beside what was measured.
  void add_prediction(MemoryResult& r, const plan::Walk& walk, const plan::Prediction& need) const {
    std::vector<PhaseMemory> predicted = phases_of(need.walk);
    r.predicted_phases_equal = Json(predicted) == Json(r.phases);
    r.predicted_peak_bytes = plan::peak_of(plan::usage_by_phase(need.walk)).bytes;
    r.predicted_reserved_bytes = plan::peak_reserved(need.walk);
    if (!*r.predicted_phases_equal) r.predicted_phases = predicted;
    if (config_.device != DeviceType::cuda) return;
    r.outside_bytes = walk.outside_bytes;
    r.device_bytes = r.reserved_bytes + walk.outside_bytes;
    r.predicted_device_bytes = plan::device_need(need);
    r.predicted_to_device = double(*r.predicted_device_bytes) / double(*r.device_bytes);
  }

  const MeasuredRun& config_;
  DeviceInfo on_;
  const MemoryOptions& options_;
  bool alone_;
  const MakeModel& make_model_;
  std::string& snapshot_;
  Json result_;
};

void check_snapshot(const std::string& path, size_t runs) {
  if (path.empty()) return;
  check(path.ends_with(".pickle") || path.ends_with(".json"), "--snapshot {}: the name must end in .pickle or .json",
        path);
  check(runs == 1, "--snapshot {}: a snapshot is of one configuration, but these flags make {}", path, runs);
}

int exit_code_of(const Json& results, const MemoryOptions& options) {
  bool any = false;
  for (const Json& r : results)
    any = any || (r["status"] == "ok" && (options.card.empty() || r["cards"]["card_fits"] == true));
  return any ? 0 : int(ErrorKind::memory);
}

}  // namespace

int memory_model(const MemoryOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  SweepOptions sweep = options.sweep;
  if (options.predict && !sweep.device) sweep.device = "cuda";  // what people ask about, whether they have one or not
  sweep = with_defaults(sweep);
  set_up_process(sweep);
  if (!options.card.empty())
    check(*sweep.device != "cpu", "--card {}: a GPU, but this would run on the CPU; add --predict, or --device cuda",
          options.card);
  std::optional<DeviceInfo> imagined;  // what is predicted for
  if (!options.card.empty()) imagined = plan::card_named(options.card).info();
  else if (options.predict) imagined = imagined_device(*sweep.device);
  check(options.predict || !options.ranks.any(),
        "--ranks and --shard: what a rank of many needs is predicted; add --predict, or measure with bench shard");
  std::vector<MeasuredRun> runs = with_ranks(expand(sweep, options.predict ? imagined : std::nullopt), options.ranks);
  check_snapshot(options.snapshot, runs.size());
  check(output.plot.empty() || runs.size() == 1,
        "--plot {}: a timeline is of one configuration, but these flags make {}", output.plot, runs.size());
  Experiment e{"memory model", to_json(sweep), options.predict ? DeviceType::cpu : runs[0].device};
  e.config["predict"] = options.predict;
  std::string snapshot;
  for (const MeasuredRun& c : runs)
    e.groups.emplace_back().cases.push_back(std::make_unique<MemoryCase>(
        c, options.predict ? *imagined : target_of(c.device), options, runs.size() == 1, make_model, snapshot));
  e.files = {{"--snapshot", options.snapshot, [&] { return snapshot; }}};
  e.exit_code = [&](const Json& results) { return exit_code_of(results, options); };
  return run(e, output);
}

}  // namespace sinter::lab
