#include "lab/memory/memory_model.h"

#include "core/range.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "lab/tuning.h"
#include "plan/fit.h"
#include "plan/gpus.h"
#include "system/files.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

Json phases_json(const std::vector<plan::PhaseUsage>& phases) {
  Json rows = Json::array();
  for (const plan::PhaseUsage& p : phases)
    rows.push_back({{"phase", p.name},
                    {"peak_bytes", p.peak.bytes},
                    {"peak_by", categories_json(p.peak.by)},
                    {"end_bytes", p.end.bytes},
                    {"end_by", categories_json(p.end.by)}});
  return rows;
}

Json largest_json(const plan::Walk& run, int64_t most) {
  Json rows = Json::array();
  for (const plan::HeldAtPeak& h : plan::held_at_peak(run)) {
    if (int64_t(rows.size()) == most) break;
    rows.push_back({{"bytes", h.bytes},
                    {"count", h.count},
                    {"category", name_of(h.category)},
                    {"tensor", h.tensor},
                    {"range", h.range},
                    {"source", h.source}});
  }
  return rows;
}

// Which cards it fits on, each by a prediction for that card, and what would make it fit on one: the one named, the one here, or else the largest it
// does not fit on.
Json cards_json(const MeasuredRun& c, const plan::Prediction& need, const std::string& wanted,
                const MakeModel& make_model) {
  Json fitting = Json::array(), missing = Json::array();
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
    (ok ? fitting : missing).push_back(name);
    if (!ok && wanted.empty() && !cuda_backend()) card = info;
  }
  Json j = {{"device_bytes", plan::device_need(need)}, {"fits", fitting}, {"does_not_fit", missing}};
  if (!card) return j;
  j["card"] = card->name;
  j["card_bytes"] = card->memory_bytes;
  j["card_fits"] = plan::fits(asked, *card, make_model);
  if (j["card_fits"] == false) {
    std::string change = plan::cheapest_change(asked, *card, make_model);
    j["change"] = change.empty() ? Json() : Json(change);
  }
  return j;
}

Json result_of(const MeasuredRun& c, const plan::Walk& run, const plan::Prediction& need, bool predicted,
               const std::string& on, const MemoryOptions& options, const MakeModel& make_model) {
  std::vector<plan::PhaseUsage> phases = plan::usage_by_phase(run);
  plan::Usage peak = plan::peak_of(phases);
  Json r = to_json(c);
  r["status"] = run.out_of_memory.empty() ? "ok" : "oom";
  if (!run.out_of_memory.empty()) r["reason"] = run.out_of_memory;
  r["predicted"] = predicted;
  r["predicted_for"] = on;
  r["attention_why"] = c.attention_why;
  r["maths"] = maths_text(c.precision);
  r["parameters"] = need.walk.parameters;
  r["phases"] = phases_json(phases);
  r["peak_bytes"] = peak.bytes;
  r["peak_by"] = categories_json(peak.by);
  r["reserved_bytes"] = plan::peak_reserved(run);
  r["residual_bytes"] = c.batch * c.model.ctx * c.model.d_model * 4;
  r["largest"] = largest_json(run, options.largest);
  r["leaks"] = Json::array();
  for (auto [range, bytes] : run.leaks)
    r["leaks"].push_back({{"range", range_of(range).path()}, {"bytes_per_pass", bytes}});
  if (c.device == DeviceType::cuda) r["cards"] = cards_json(c, need, options.card, make_model);
  return r;
}

// What was predicted, beside what was measured.
void add_prediction(Json& r, const MeasuredRun& c, const plan::Walk& run, const plan::Prediction& need) {
  Json predicted = phases_json(plan::usage_by_phase(need.walk));
  r["predicted_phases_equal"] = predicted == r["phases"];
  r["predicted_peak_bytes"] = plan::peak_of(plan::usage_by_phase(need.walk)).bytes;
  r["predicted_reserved_bytes"] = plan::peak_reserved(need.walk);
  if (predicted != r["phases"]) r["predicted_phases"] = predicted;
  if (c.device != DeviceType::cuda) return;
  int64_t used = r["reserved_bytes"].get<int64_t>() + run.outside_bytes;
  r["outside_bytes"] = run.outside_bytes;
  r["device_bytes"] = used;
  r["predicted_device_bytes"] = plan::device_need(need);
  r["predicted_to_device"] = double(plan::device_need(need)) / double(used);
}

// None if interrupted. The snapshot is handed out, not written: a full disk must not cost the measurement. What does not
// fit is predicted instead, so that people see why.
std::optional<Json> run_one(const MeasuredRun& c, const DeviceInfo& on, const MemoryOptions& options, bool alone,
                            const MakeModel& make_model, std::string& snapshot) {
  plan::Prediction need = plan::predict(c, on, make_model);
  plan::Fit fit{true, 0, "", ""};
  if (options.predict) fit = {need.refused.empty(), 0, need.refused, ""};
  else fit = plan::fit_of(need, backend_of(c.device).free_bytes());
  bool dry = options.predict || !fit.fits;
  restart_product_tuning();
  std::optional<plan::Walk> measured;
  if (!dry) measured = plan::walk(c, make_model);
  const plan::Walk& run = measured ? *measured : need.walk;
  if (run.interrupted) return {};
  Json r = result_of(c, run, need, dry, on.name, options, make_model);
  if (!dry) add_tuning(r, product_tuning());
  if (!fit.fits) r["status"] = "oom", r["reason"] = fit.reason;
  if (!dry && run.out_of_memory.empty()) add_prediction(r, c, run, need);
  if (alone) r["timeline"] = timeline_json(run, c, on.name, dry);
  if (!options.snapshot.empty())
    snapshot = options.snapshot.ends_with(".pickle") ? to_pickle(run.memory) : to_json(run.memory);
  return r;
}

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
  check_output(output, {{"--snapshot", options.snapshot}});
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
  std::vector<MeasuredRun> runs = expand(sweep, options.predict ? imagined : std::nullopt);
  check_snapshot(options.snapshot, runs.size());
  check(output.plot.empty() || runs.size() == 1,
        "--plot {}: a timeline is of one configuration, but these flags make {}", output.plot, runs.size());
  Json config = to_json(sweep);
  config["predict"] = options.predict;
  Json record = new_record("memory model", machine_block(options.predict ? DeviceType::cpu : runs[0].device), config);
  Progress progress;
  catch_interrupts();
  std::string snapshot;
  for (const MeasuredRun& c : runs) {
    if (interrupted()) break;
    progress.now(c.text());
    std::optional<Json> r =
        run_one(c, options.predict ? *imagined : target_of(c.device), options, runs.size() == 1, make_model, snapshot);
    if (!r) break;
    if (runs.size() > 1)
      progress.done(fmt::format("{}: {}", c.text(),
                                (*r)["status"] == "oom" ? "OOM: " + (*r)["reason"].get<std::string>()
                                                        : "peak " + bytes_text((*r)["peak_bytes"].get<double>())));
    if (std::string tuned = tuning_text(*r); !tuned.empty()) progress.done(fmt::format("{}: {}", c.text(), tuned));
    record["results"].push_back(std::move(*r));
  }
  if (!record["results"].empty()) write_output(output, record);
  if (!snapshot.empty()) write_file(options.snapshot, snapshot);
  if (interrupted()) {
    progress.done(interrupted_text(record["results"].size(), runs.size()));
    return interrupted_exit_code;
  }
  return exit_code_of(record["results"], options);
}

}  // namespace sinter::lab
