#include "lab/ranked_step.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "backend/cpu/thread_pool.h"
#include "core/clock.h"
#include "dist/mps.h"
#include "ops/ops.h"
#include "profile/profiler.h"
#include "system/files.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

namespace fs = std::filesystem;

constexpr int64_t recorded_steps = 2;

std::shared_ptr<Ranks> make_ranks(dist::World& world, const std::string& backend, int64_t count, DeviceType device) {
  std::vector<int> ranks;
  for (int r = 0; r < int(count); ++r) ranks.push_back(r);
  auto made = std::make_shared<Ranks>(Ranks{world, count, world.choose(backend, ranks, device), {}, nullptr});
  made->group = world.make_group(backend, ranks, false, device);
  if (device == DeviceType::cuda) made->share_a_gpu = world.share_a_gpu(ranks);
  return made;
}

// "mini, batch 4, ctx 128, fp32, …, 2 ranks, bucketed 25 MiB" without spaces and commas: cases that differ in anything
// have folders of their own.
std::string folder_of(const std::string& text) {
  std::string folder;
  for (unsigned char c : text)
    if (std::isalnum(c) || c == '.' || c == '-') folder += char(c);
    else if (!folder.empty() && folder.back() != '_') folder += '_';
  return folder;
}

void check_folder(const std::string& trace) {
  if (trace.empty()) return;
  std::error_code error;
  fs::create_directories(trace, error);
  check(!error && fs::is_directory(trace), "--trace {}: no folder can be made there ({})", trace, error.message());
}

}  // namespace

void add_ranked_flags(Flags& flags, ModelFlags& model, RankedOptions& o, OutputOptions& output) {
  model.declare(flags, {"pass", "no_tune"});
  add_rank_flags(flags, o.ranks);
  flags.add("--backend", o.backend, "NAME",
            "shm, gloo; on GPUs ipc, nccl too; hosts (one of them inside, one between); or auto: what suits where the "
            "ranks are",
            "Ranks");
  flags.add("--turns", o.turns, "N", "what is compared is measured in so many turns (default 2)", "Run");
  flags.add("--trace", o.trace, "DIR", "write a trace for each case and rank, in Kineto's format", "Output");
  add_output_flags(flags, output, Plot::yes);
}

void take_ranked_flags(const ModelFlags& model, RankedOptions& o, OutputOptions& output) {
  o.sweep = model.sweep();
  o.ranks.deterministic = o.sweep.deterministic.value_or(false);
  output.reads = {{"--config", model.config_file()}};
}

void RankedResult::add_statistics() {
  Statistics s = statistics_of(samples_ms);
  mean_ms = s.mean, std_ms = s.std, median_ms = s.median;
}

RankedCase::RankedCase(const RankedOptions& options, const MeasuredRun& run, std::shared_ptr<Ranks> ranks,
                       std::string name, std::string detail, const MakeModel& make_model)
    : run_(run),
      ranks_(std::move(ranks)),
      options_(options),
      name_(std::move(name)),
      detail_(std::move(detail)),
      make_model_(make_model) {}

std::string RankedCase::text() const {
  return fmt::format("{}, {} {}, {}{}", run_.text(), ranks_->count, ranks_->count == 1 ? "rank" : "ranks", name_,
                     detail_.empty() ? "" : " " + detail_);
}

plan::Fit RankedCase::fit() {
  std::optional<plan::Prediction> mine;
  if (ranks_->group) mine = need_ = plan::predict(run_, target_of(run_.device), make_model_);
  return fit_on(ranks_->world, ranks_->count, run_.device, mine);
}

Json RankedCase::does_not_fit(const std::string& reason, int64_t) {
  result().status = "oom", result().reason = reason;
  return complete_row();
}

bool RankedCase::run(const Turn& turn, Progress& progress) {
  dist::World& world = ranks_->world;
  bool last = turn.index + 1 == turn.count, going = true;
  RankSteps mine;
  mine.rank = world.rank(), mine.host = world.host_of(world.rank());
  if (run_.device == DeviceType::cuda) mine.device_uuid = backend_of(run_.device).info().uuid;
  if (ranks_->group) try {
      going = measure(turn.share(run_.steps), last, mine, progress);
    } catch (const Error& e) {
      // The others are in collectives that this rank will not come to: nobody can go on.
      if (e.kind() == ErrorKind::memory) end_rank(e);
      throw;
    }
  Json j = mine;
  j["member"] = bool(ranks_->group), j["going"] = going;
  std::vector<RankSteps> members;
  for (const std::string& text : from_all(world, j.dump()))
    if (Json theirs = Json::parse(text); theirs["member"]) {
      going = going && theirs["going"].get<bool>();
      members.push_back(theirs);
    }
  join(members, last && going);
  allocator_of(run_.device).release_cached();
  return going;
}

Json RankedCase::rows() {
  RankedResult& r = result();
  if (r.samples_ms.empty()) return Json::array();
  r.add_statistics();
  r.tokens_per_s = double(run_.batch * run_.accumulate * run_.model.ctx * ranks_->count) / *r.median_ms * 1e3;
  r.predicted_peak_bytes = need_.bytes();
  return Json::array({complete_row()});
}

Json RankedCase::complete_row() {
  RankedResult& r = result();
  r.run = run_;
  r.ranks = ranks_->count, r.threads = cpu::threads();
  r.backend = ranks_->choice.backend, r.backend_why = ranks_->choice.why, r.share_a_gpu = ranks_->share_a_gpu;
  return row();
}

std::string RankedCase::outcome(const Json& r) const {
  if (r["status"] == "oom") return Case::outcome(r);
  return fmt::format("{} ms", significant(r["median_ms"].get<double>(), 4));
}

// Everybody begins at once, or nobody does.
bool RankedCase::everybody_goes_on() {
  float stop = interrupted() ? 1 : 0;
  group().run({CollectiveKind::all_reduce, ReduceKind::sum, DType::f32, 0, 1}, &stop, &stop, nullptr);
  return stop == 0;
}

bool RankedCase::measure(int64_t timed, bool last, RankSteps& mine, Progress& progress) {
  CachingAllocator& allocator = allocator_of(run_.device);
  allocator.reset_peak();
  Workload work(run_, run_.device, make_model_);
  made();
  int64_t step = 0;
  auto one = [&] {
    ranks_->world.begin_step(++step);
    work.run([&](Phase phase) { phase_ended(phase); });
    synchronize(run_.device);
    if (ranks_->group) ranks_->group->throw_if_failed();
    stepped(work, step);
  };
  for (int64_t i = 0; i < run_.warmup + timed; ++i) {
    if (!everybody_goes_on()) return false;
    progress.now(fmt::format("{}: step {}/{}", text(), i + 1, run_.warmup + timed));
    int64_t begin = steady_ns();
    one();
    if (i >= run_.warmup) mine.samples_ms.push_back(ms_since(begin));
  }
  mine.peak_bytes = allocator.stats().peak_allocated;
  if (work.loss().defined()) result().loss = item(work.loss());
  finished(work, mine);
  if (last) record(one, mine);
  return true;
}

// Two more steps with what every lane does written down.
void RankedCase::record(const std::function<void()>& one, RankSteps& mine) {
  Profiler profiler(run_.device, ProfilerChoice::automatic);
  auto synchronised = [&] {
    group().run({}, nullptr, nullptr, nullptr);
    one();
  };
  auto never = [] { return false; };
  std::optional<Profile> p = profiler.run(synchronised, 0, recorded_steps, !options_.trace.empty(), never);
  Overlap o = communication_overlap(p->trace.device);
  mine.communication_ms = double(o.communication_ns) / 1e6 / recorded_steps;
  mine.exposed_ms = double(o.communication_ns - o.overlapped_ns) / 1e6 / recorded_steps;
  recorded(p->trace);
  if (options_.trace.empty()) return;
  p->trace.rank = group().rank(), p->trace.world_size = group().size();
  fs::path path = fs::path(options_.trace) / folder_of(text());
  fs::create_directories(path);
  write_file((path / fmt::format("rank_{}.json", group().rank())).string(), to_kineto(p->trace));
}

// A step takes as long as its slowest rank. Of what is not a sample, the last turn counts.
void RankedCase::join(const std::vector<RankSteps>& members, bool recorded) {
  RankedResult& r = result();
  size_t steps = SIZE_MAX;
  for (const RankSteps& m : members) steps = std::min(steps, m.samples_ms.size());
  for (size_t i = 0; i < steps; ++i) {
    double slowest = 0;
    for (const RankSteps& m : members) slowest = std::max(slowest, m.samples_ms[i]);
    r.samples_ms.push_back(slowest);
  }
  r.by_rank.resize(members.size());
  double communication = 0, exposed = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    RankSteps before = std::exchange(r.by_rank[i], members[i]);
    RankSteps& now = r.by_rank[i];
    now.samples_ms.insert(now.samples_ms.begin(), before.samples_ms.begin(), before.samples_ms.end());
    now.peak_bytes = std::max(now.peak_bytes, before.peak_bytes);
    r.peak_bytes = std::max(r.peak_bytes.value_or(0), now.peak_bytes);
    communication += now.communication_ms / double(members.size()), exposed += now.exposed_ms / double(members.size());
  }
  if (!recorded) return;
  r.communication_ms = communication, r.exposed_ms = exposed;
  if (communication > 0) r.overlap = 1 - exposed / communication;
}

int bench_ranked(const RankedBench& bench, RankedOptions o, const OutputOptions& output) {
  dist::check_backend(o.backend);
  check(o.turns >= 1 && o.turns <= 1000, "--turns must be between 1 and 1000, not {}", o.turns);
  fill_in(o.ranks);
  if (!o.sweep.device) o.sweep.device = default_device();
  if (!o.sweep.threads) divide_threads(o.ranks);
  set_up_process(o.sweep);
  o.sweep = with_defaults(o.sweep);
  check(o.sweep.warmup.size() == 1, "--warmup: give one number of untimed steps");
  check(o.sweep.pass == std::vector<std::string>{"step"}, "--pass: this is about whole steps; leave it out");
  std::vector<MeasuredRun> runs = expand(o.sweep);  // refuses before any rank is started
  if (is_first_rank(o.ranks)) {
    check_output(output);
    check_folder(o.trace);
  }
  return on_ranks(o.ranks, [&](dist::World& world) {
    Experiment e{bench.command, to_json(o.sweep), runs[0].device};
    e.config["ranks"] = o.ranks.ranks;
    e.config["backend"] = o.backend;
    if (runs[0].device == DeviceType::cuda) e.config["mps"] = dist::mps_runs();
    e.config.update(bench.config);
    std::vector<std::shared_ptr<Ranks>> all;
    for (int64_t count : o.ranks.ranks) all.push_back(make_ranks(world, o.backend, count, runs[0].device));
    for (const MeasuredRun& run : runs)
      for (const auto& ranks : all) {
        Group& g = e.groups.emplace_back();
        g.turns = int(o.turns);
        bench.add_cases(run, ranks, g);
      }
    e.before = [&](Progress& progress) {
      for (const auto& ranks : all)
        if (bench.before) bench.before(*ranks, runs[0].device, progress);
    };
    return run(world, e, output);
  });
}

}  // namespace sinter::lab
