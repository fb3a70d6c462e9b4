#include "lab/attention/bench_attention.h"

#include "core/check.h"
#include "lab/bench/bench_model.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "ops/ops.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

struct Variant {
  AttentionConfig config;
  AttentionNeed need;
  std::optional<AttentionMeasurement> measurement;
  std::optional<Json> oom;
};

// What is compared with one another: one shape, pass and dtype.
bool comparable(const AttentionConfig& a, const AttentionConfig& b) {
  Json x = to_json(a), y = to_json(b);
  for (const char* varied : {"attention", "attention_why", "tile", "deterministic", "mode", "passes"})
    x.erase(varied), y.erase(varied);
  return x == y;
}

// Written ahead of each pass on a GPU: it takes the device longer than the host needs to submit a pass, so that the events
// see no launch gaps; it also empties the caches, as between the layers of a model.
constexpr int64_t ahead_bytes = int64_t(512) << 20;

Variant prepared(const AttentionConfig& c) {
  Variant v{c, predict(c), {}, {}};
  allocator_of(c.device).release_cached();
  int64_t free = backend_of(c.device).free_bytes() - (c.device == DeviceType::cuda ? ahead_bytes : 0);
  if (v.need.peak_bytes > free) v.oom = attention_oom(c, v.need, why_it_does_not_fit(c, v.need, free), free);
  return v;
}

// False if interrupted.
bool run_turn(Variant& v, const AttentionBenchOptions& options, int64_t passes, Progress& progress) {
  if (v.oom) return true;
  try {
    std::optional<AttentionMeasurement> m = measure(v.config, options, passes, progress);
    if (!m) return false;
    if (v.measurement) v.measurement->append(*m);
    else v.measurement = std::move(m);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    allocator_of(v.config.device).release_cached();
    v.oom = attention_oom(v.config, v.need, e.what(), backend_of(v.config.device).free_bytes());
  }
  return true;
}

std::string outcome_text(const Json& r) {
  if (r["status"] == "oom") return "OOM: " + r["reason"].get<std::string>();
  const Json& phase = r["phases"].contains("both") ? r["phases"]["both"] : r["phases"]["forward"];
  return significant(phase["median_ms"].get<double>(), 4) + " ms";
}

// Groups of comparable configurations, each in turns. With peers all are one group, and the peers run between the turns.
void run_all(const AttentionBenchOptions& options, Json& record, Progress& progress) {
  const std::vector<AttentionConfig>& configs = options.configs;
  plan::Peaks peaks(configs[0].device);
  for (size_t begin = 0, end; begin < configs.size(); begin = end) {
    std::vector<Variant> group;
    for (end = begin; end < configs.size(); ++end) {
      if (options.peers.empty() && !comparable(configs[begin], configs[end])) break;
      group.push_back(prepared(configs[end]));
    }
    Json theirs = Json::array();
    auto run_turns = [&] {
      bool first = true;
      for (int64_t passes : turns_of(options.steps, group.size() + options.peers.size())) {
        for (Variant& v : group)
          if (!run_turn(v, options, passes, progress)) return;
        if (std::exchange(first, false) && !options.peers.empty())
          theirs = attention_peer_results(options, record["notes"], progress);
        if (interrupted()) return;
      }
    };
    run_turns();
    for (Variant& v : group) {
      if (!v.oom && !v.measurement) continue;  // interrupted before its first turn was over
      record["results"].push_back(v.oom ? *v.oom : attention_result(v.config, v.need, *v.measurement, peaks));
      progress.done(fmt::format("{}: {}", v.config.text(), outcome_text(record["results"].back())));
    }
    for (Json& r : theirs) record["results"].push_back(std::move(r));
    if (interrupted()) return;
  }
}

}  // namespace

void AttentionMeasurement::append(const AttentionMeasurement& later) {
  device.append(later.device);
  host.append(later.host);
  peak_bytes = std::max(peak_bytes, later.peak_bytes);
}

std::optional<AttentionMeasurement> measure(const AttentionConfig& c, const AttentionBenchOptions& options,
                                            int64_t timed, Progress& progress) {
  AttentionMeasurement m;
  CachingAllocator& allocator = allocator_of(c.device);
  bool cuda = c.device == DeviceType::cuda;
  allocator.release_cached();
  {
    Tensor ahead = cuda ? empty({ahead_bytes / 4}, DType::f32, c.device) : Tensor();
    int64_t before = allocator.stats().allocated;
    allocator.reset_peak();
    AttentionWork work(c, c.device);
    work.run([&](Phase phase) {
      if (phase == Phase::forward) m.held_bytes = allocator.stats().allocated - before - work.grad_bytes();
    });
    if (c.mode == Mode::compiled) m.held_bytes = work.planned_held_bytes();
    int64_t first_peak = allocator.stats().peak_allocated;  // the gradients of q, k and v are made once
    TimedWork passes{c.device, c.text(), c.pass == Pass::forward ? 1 : 2, options.warmup,
                     [&](const auto& mark) { work.run(mark); }};
    passes.seconds = options.seconds;
    if (!time_passes(passes, timed, m.host, progress)) return {};
    if (cuda) {
      passes.before = [&] { fill(ahead, 0); };
      if (!time_passes(passes, timed, m.device, progress)) return {};
    } else {
      m.device = m.host;  // nothing is queued: the two are one
    }
    m.peak_bytes = std::max(first_peak, m.host.memory.peak_allocated) - before;
    if (const compile::Compilation* compilation = work.compilation())
      m.compiled = compilation_json(*compilation, compilation->time);
  }
  allocator.release_cached();
  return m;
}

int bench_attention(const AttentionBenchOptions& options, OutputOptions output) {
  check_output(output);
  check(options.warmup >= 0 && options.warmup <= 1000000, "--warmup must be between 0 and 1000000, not {}",
        options.warmup);
  check(options.steps >= 1 && options.steps <= 1000000, "--steps must be between 1 and 1000000, not {}", options.steps);
  check(options.seconds >= 0, "--seconds must not be negative, and is {}", options.seconds);
  Json config = {{"table", options.table}, {"warmup", options.warmup}, {"steps", options.steps}};
  if (options.seconds > 0) config["seconds"] = options.seconds;
  Json record = new_record("bench attention", machine_block(options.configs[0].device), config);
  record["notes"] = Json::array();
  Progress progress;
  catch_interrupts();
  auto finish = [&] {
    record["growth"] = growth_of(record["results"]);
    bool any = false;
    for (const Json& r : record["results"]) any = any || r["status"] != "oom";
    if (!any) output.plot.clear();
    write_output(output, record);
    return any ? 0 : int(ErrorKind::memory);
  };
  try {
    run_all(options, record, progress);
  } catch (const Error&) {
    if (!record["results"].empty()) finish();  // what was finished is not lost
    throw;
  }
  if (interrupted() && record["results"].empty()) {
    progress.done(interrupted_text(0, options.configs.size()));
    return interrupted_exit_code;
  }
  int code = finish();
  if (!interrupted()) return code;
  progress.done(interrupted_text(record["results"].size(), options.configs.size()));
  return interrupted_exit_code;
}

}  // namespace sinter::lab
