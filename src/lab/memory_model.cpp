#include "lab/memory_model.h"

#include "core/range.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "lab/tuning.h"
#include "plan/cards.h"
#include "system/files.h"
#include "system/process.h"
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

Json largest_json(const plan::MemoryRun& run, int64_t most) {
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

// Which cards it fits on, and what would make it fit on one: the one named, the one here, or else the largest it does not
// fit on.
Json cards_json(const MeasuredRun& c, const plan::Need& need, const std::string& wanted, const MakeModel& make_model) {
  Json fitting = Json::array(), missing = Json::array();
  const plan::Card* card = wanted.empty() ? nullptr : &plan::card_named(wanted);
  plan::Card here{"this GPU", 0, 0};
  if (!card && cuda_backend()) {
    DeviceInfo info = cuda_backend()->info();
    here.bytes = info.memory_bytes, here.compute_capability = info.compute_capability;
    card = &here;
  }
  for (const plan::Card& known : plan::known_cards()) {
    bool ok = plan::fits(need, c, known);
    std::string name = known.name;
    if (std::string missing = plan::missing_on(known, c); !missing.empty()) name += " (has no " + missing + ")";
    (ok ? fitting : missing).push_back(name);
    if (!ok && wanted.empty() && !cuda_backend()) card = &known;
  }
  Json j = {{"device_bytes", plan::device_need(need)}, {"fits", fitting}, {"does_not_fit", missing}};
  if (!card) return j;
  j["card"] = card->name;
  j["card_bytes"] = card->bytes;
  j["card_fits"] = plan::fits(need, c, *card);
  if (j["card_fits"] == false) {
    std::string change = plan::cheapest_change(c, *card, make_model);
    j["change"] = change.empty() ? Json() : Json(change);
  }
  return j;
}

Json result_of(const MeasuredRun& c, const plan::MemoryRun& run, const plan::Need& need, bool predicted,
               const MemoryOptions& options, const MakeModel& make_model) {
  std::vector<plan::PhaseUsage> phases = plan::usage_by_phase(run);
  plan::Usage peak = plan::peak_of(phases);
  Json r = to_json(c);
  r["status"] = run.out_of_memory.empty() ? "ok" : "oom";
  if (!run.out_of_memory.empty()) r["reason"] = run.out_of_memory;
  r["predicted"] = predicted;
  r["attention_why"] = c.attention_why;
  r["maths"] = maths_text(c.precision);
  r["parameters"] = need.parameters;
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
void add_prediction(Json& r, const MeasuredRun& c, const plan::MemoryRun& run, const plan::Need& need,
                    const MakeModel& make_model) {
  plan::MemoryRun dry = plan::run_memory(c, DeviceType::meta, make_model);
  Json predicted = phases_json(plan::usage_by_phase(dry));
  r["predicted_phases_equal"] = predicted == r["phases"];
  r["predicted_peak_bytes"] = plan::peak_of(plan::usage_by_phase(dry)).bytes;
  r["predicted_reserved_bytes"] = plan::peak_reserved(dry);
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
std::optional<Json> run_one(const MeasuredRun& c, const MemoryOptions& options, bool alone, const MakeModel& make_model,
                            std::string& snapshot) {
  plan::Need need = plan::predict(c, make_model);
  plan::Fit fit{true, 0, "", ""};
  if (!options.predict) fit = plan::fit_of(need, c);
  bool dry = options.predict || !fit.fits;
  restart_product_tuning();
  plan::MemoryRun run = plan::run_memory(c, dry ? DeviceType::meta : c.device, make_model);
  if (run.interrupted) return {};
  Json r = result_of(c, run, need, dry, options, make_model);
  if (!dry) add_tuning(r, product_tuning());
  if (!fit.fits) r["status"] = "oom", r["reason"] = fit.reason;
  if (!dry && run.out_of_memory.empty()) add_prediction(r, c, run, need, make_model);
  if (alone) r["timeline"] = timeline_json(run, c, dry);
  if (!options.snapshot.empty())
    snapshot = options.snapshot.ends_with(".pickle") ? to_pickle(run.snapshot) : to_json(run.snapshot);
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
  std::vector<MeasuredRun> runs = expand(sweep, options.predict ? Device::imagined : Device::present);
  check_snapshot(options.snapshot, runs.size());
  check(output.plot.empty() || runs.size() == 1,
        "--plot {}: a timeline is of one configuration, but these flags make {}", output.plot, runs.size());
  if (!options.card.empty()) {
    plan::card_named(options.card);
    check(runs[0].device == DeviceType::cuda, "--card {}: a GPU, but --device is cpu", options.card);
  }

  Json config = to_json(sweep);
  config["predict"] = options.predict;
  Json record = new_record("memory model", machine_block(options.predict ? DeviceType::cpu : runs[0].device), config);
  Progress progress;
  catch_interrupts();
  std::string snapshot;
  for (const MeasuredRun& c : runs) {
    progress.now(c.text());
    std::optional<Json> r = run_one(c, options, runs.size() == 1, make_model, snapshot);
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
