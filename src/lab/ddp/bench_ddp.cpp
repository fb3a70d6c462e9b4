#include "lab/ddp/bench_ddp.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "backend/cpu/thread_pool.h"
#include "core/clock.h"
#include "lab/ddp/result.h"
#include "ops/ops.h"
#include "profile/profiler.h"
#include "system/files.h"
#include "system/signals.h"
#include "system/units.h"
#include "train/workload.h"

namespace sinter::lab {
namespace {

namespace fs = std::filesystem;

constexpr int64_t recorded_steps = 2;

// The ranks of a case, on every rank of the world; those outside have no group and only keep step.
struct Ranks {
  dist::World& world;
  int64_t count;
  dist::World::Choice choice;
  std::unique_ptr<ProcessGroup> group;
  // Of the group, for the bucket model: what a call costs by itself, and the rate of a large one.
  double call_s = 0, bytes_per_s = 0;
};

// As a step makes it: on the communication stream, and waited for.
double all_reduce_seconds(ProcessGroup& group, int64_t bytes, int times) {
  int64_t n = std::max<int64_t>(1, bytes / 4);
  Tensor x = group.pool() ? empty_in_pool({n}, DType::f32, DeviceType::cpu, group.pool())
                          : empty({n}, DType::f32, DeviceType::cpu);
  fill(x, 0);
  std::vector<double> seconds;
  for (int i = 0; i < times + 1; ++i) {
    group.run({}, nullptr, nullptr, nullptr);
    int64_t begin = steady_ns();
    all_reduce(x, group, ReduceKind::average);
    join_communication(DeviceType::cpu);
    if (i > 0) seconds.push_back(double(steady_ns() - begin) / 1e9);
  }
  return statistics_of(seconds).median;
}

// One step: when a lane was at work. Pieces closer than what an eye can tell apart are joined.
Json lanes_of(const Trace& trace) {
  if (trace.steps.empty()) return nullptr;
  auto [begin, end] = trace.steps.back();
  double scale = double(end - begin) / 2000;
  std::map<std::string, std::vector<std::pair<double, double>>> lanes;
  std::vector<const Activity*> sorted;
  for (const Activity& a : trace.device)
    if (a.begin_ns >= begin && a.end_ns <= end) sorted.push_back(&a);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->begin_ns < b->begin_ns; });
  for (const Activity* a : sorted) {
    auto& lane = lanes[is_communication(*a) ? "communication" : a->stream > 0 ? "updates" : "compute"];
    double from = double(a->begin_ns - begin), to = double(a->end_ns - begin);
    bool join = !lane.empty() && from - lane.back().second < scale && !is_communication(*a);
    if (join) lane.back().second = std::max(lane.back().second, to);
    else lane.emplace_back(from, to);
  }
  Json j = Json::object();
  j["step_us"] = std::round(double(end - begin) / 1e3);
  for (const auto& [name, pieces] : lanes) {
    j[name] = Json::array();
    for (auto [from, to] : pieces) j[name].push_back({std::round(from / 1e3), std::round(to / 1e3)});
  }
  return j;
}

class DdpCase : public Case {
 public:
  DdpCase(const DdpOptions& options, const MeasuredRun& run, std::shared_ptr<Ranks> ranks, std::string strategy,
          std::optional<double> bucket_mb, const MakeModel& make_model)
      : options_(options), run_(run), ranks_(std::move(ranks)), make_model_(make_model) {
    result_.strategy = std::move(strategy);
    result_.bucket_mb = bucket_mb;
    result_.ranks = ranks_->count;
    result_.threads = cpu::threads();
    result_.backend = ranks_->choice.backend, result_.backend_why = ranks_->choice.why;
    if (result_.strategy != "none") {
      run_.group = ranks_->group.get();
      run_.data_parallel = {dist::strategy_named(result_.strategy), bucket_mb.value_or(25)};
    }
    result_.run = run_;
  }

  std::string text() const override {
    return fmt::format("{}, {} {}, {}{}", run_.text(), result_.ranks, result_.ranks == 1 ? "rank" : "ranks",
                       result_.strategy, result_.bucket_mb ? fmt::format(" {} MiB", *result_.bucket_mb) : "");
  }

  // Ranks share the host's memory, and all must decide alike.
  plan::Fit fit() override {
    std::string text;
    if (ranks_->world.rank() == 0) {
      need_ = plan::predict(run_, target_of(run_.device), make_model_);
      int64_t here = 0;  // ranks that share this host
      for (int r = 0; r < int(ranks_->count); ++r) here += ranks_->world.host_of(r) == ranks_->world.host_of(0);
      plan::Fit one = plan::fit_of(need_, backend_of(run_.device).free_bytes() / here);
      text = Json{{"fits", one.fits}, {"free", one.free_bytes}, {"reason", one.reason}}.dump();
    }
    Json j = Json::parse(ranks_->world.share(text));
    return {j["fits"], j["free"], j["reason"], ""};
  }
  Json does_not_fit(const std::string& reason, int64_t) override {
    DdpResult r = result_;
    r.status = "oom", r.reason = reason;
    return r;
  }

  bool run(const Turn& turn, Progress& progress) override {
    int64_t timed = turn.share(run_.steps);
    bool last = turn.index + 1 == turn.count, going = true;
    RankSteps mine;
    mine.rank = ranks_->world.rank(), mine.host = ranks_->world.host_of(ranks_->world.rank());
    if (ranks_->group) try {
        going = measure(timed, last, mine, progress);
      } catch (const Error& e) {
        // The others are in collectives that this rank will not come to: nobody can go on.
        if (e.kind() == ErrorKind::memory) end_rank(e);
        throw;
      }
    Json j = mine;
    j["member"] = bool(ranks_->group), j["going"] = going;
    std::vector<std::string> all = from_all(ranks_->world, j.dump());
    std::vector<Json> members;
    for (const std::string& text : all)
      if (Json m = Json::parse(text); m["member"]) members.push_back(m);
    for (const Json& m : members) going = going && m["going"].get<bool>();
    add(members, last);
    allocator_of(run_.device).release_cached();
    return going;
  }

  Json rows() override {
    if (result_.samples_ms.empty()) return Json::array();
    Statistics s = statistics_of(result_.samples_ms);
    result_.mean_ms = s.mean, result_.std_ms = s.std, result_.median_ms = s.median;
    result_.tokens_per_s = double(run_.batch * run_.accumulate * run_.model.ctx * result_.ranks) / s.median * 1e3;
    result_.predicted_peak_bytes = need_.bytes();
    return Json::array({result_});
  }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return Case::outcome(r);
    return fmt::format("{} ms", significant(r["median_ms"].get<double>(), 4));
  }

 private:
  ProcessGroup& group() { return *ranks_->group; }

  // Everybody begins at once, or nobody does.
  bool everybody_goes_on() {
    float stop = interrupted() ? 1 : 0;
    group().run({CollectiveKind::all_reduce, ReduceKind::sum, DType::f32, 0, 1}, &stop, &stop, nullptr);
    return stop == 0;
  }

  bool measure(int64_t timed, bool last, RankSteps& mine, Progress& progress) {
    Workload work(run_, run_.device, make_model_);
    CachingAllocator& allocator = allocator_of(run_.device);
    int64_t step = 0;
    auto one = [&] {
      ranks_->world.begin_step(++step);
      work.run();
      synchronize(run_.device);
      if (options_.check_replicas > 0 && step % options_.check_replicas == 0 && run_.group)
        dist::check_replicas(group(), work.trainer().parameters(), step);
    };
    for (int64_t i = 0; i < run_.warmup + timed; ++i) {
      if (!everybody_goes_on()) return false;
      if (i == run_.warmup) allocator.reset_peak();
      progress.now(fmt::format("{}: step {}/{}", text(), i + 1, run_.warmup + timed));
      int64_t begin = steady_ns();
      one();
      if (i >= run_.warmup) mine.samples_ms.push_back(ms_since(begin));
    }
    mine.peak_bytes = allocator.stats().peak_allocated;
    if (work.loss().defined()) result_.loss = item(work.loss());
    describe(work);
    if (last) record(one, mine);
    return true;
  }

  // Two more steps with what every lane does written down.
  void record(const std::function<void()>& one, RankSteps& mine) {
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
    if (ranks_->world.rank() == 0) result_.lanes = lanes_of(p->trace);
    if (options_.trace.empty()) return;
    p->trace.rank = group().rank(), p->trace.world_size = group().size();
    fs::path folder = fs::path(options_.trace) / folder_name();
    fs::create_directories(folder);
    write_file((folder / fmt::format("rank_{}.json", group().rank())).string(), to_kineto(p->trace));
  }
  std::string folder_name() const {
    std::string name =
        fmt::format("{}_{}_{}_{}ranks", result_.strategy, run_.model.name, name_of(run_.mode), result_.ranks);
    return result_.bucket_mb ? fmt::format("{}_{}MiB", name, *result_.bucket_mb) : name;
  }

  void describe(Workload& work) {
    const dist::DataParallel* d = work.trainer().data_parallel();
    if (!d) return;
    int64_t elements = 0;
    for (const auto& b : d->buckets()) elements += b.end - b.begin;
    auto n = double(d->group().size());
    result_.collectives = int64_t(d->buckets().size()) + 1;  // and the loss
    result_.gradient_bytes = elements * size_of(work.trainer().parameters().master().dtype());
    result_.wire_bytes = 2 * (n - 1) / n * double(*result_.gradient_bytes);
    double s = double(*result_.gradient_bytes), count = double(d->buckets().size());
    double w = ranks_->bytes_per_s, o = ranks_->call_s;
    if (w <= 0 || o <= 0) return;
    double best = std::sqrt(s * w * o);
    result_.model = Json{{"bytes", s},
                         {"bandwidth_gbs", w / 1e9},
                         {"call_us", o * 1e6},
                         {"buckets", count},
                         {"overhead_ms", 1e3 * (s / (count * w) + count * o)},
                         {"best_buckets", s / best},
                         {"best_bucket_mb", best / (1 << 20)}};
  }

  // A step takes as long as its slowest rank.
  void add(const std::vector<Json>& members, bool last) {
    size_t steps = SIZE_MAX;
    for (const Json& m : members) steps = std::min(steps, m["samples_ms"].size());
    for (size_t i = 0; i < steps; ++i) {
      double slowest = 0;
      for (const Json& m : members) slowest = std::max(slowest, m["samples_ms"][i].get<double>());
      result_.samples_ms.push_back(slowest);
    }
    result_.by_rank.resize(members.size());
    double communication = 0, exposed = 0;
    for (size_t r = 0; r < members.size(); ++r) {
      const Json& m = members[r];
      RankSteps& to = result_.by_rank[r];
      to.rank = m["rank"], to.host = m["host"];
      for (double ms : m["samples_ms"]) to.samples_ms.push_back(ms);
      to.peak_bytes = std::max<int64_t>(to.peak_bytes, m["peak_bytes"]);
      to.communication_ms = m["communication_ms"], to.exposed_ms = m["exposed_ms"];
      result_.peak_bytes = std::max(result_.peak_bytes.value_or(0), to.peak_bytes);
      communication += to.communication_ms / double(members.size()), exposed += to.exposed_ms / double(members.size());
    }
    if (!last) return;
    result_.communication_ms = communication, result_.exposed_ms = exposed;
    if (communication > 0) result_.overlap = 1 - exposed / communication;
  }

  const DdpOptions& options_;
  MeasuredRun run_;
  std::shared_ptr<Ranks> ranks_;
  const MakeModel& make_model_;
  plan::Prediction need_;
  DdpResult result_;
};

std::shared_ptr<Ranks> make_ranks(dist::World& world, const std::string& backend, int64_t count) {
  std::vector<int> ranks;
  for (int r = 0; r < int(count); ++r) ranks.push_back(r);
  auto made = std::make_shared<Ranks>(Ranks{world, count, world.choose(backend, ranks), nullptr});
  made->group = world.make_group(backend, ranks);
  return made;
}

int bench_as_rank(dist::World& world, const DdpOptions& options, const SweepOptions& sweep, const OutputOptions& output,
                  const MakeModel& make_model) {
  std::vector<MeasuredRun> runs = expand(sweep);
  Experiment e{"bench ddp", to_json(sweep), runs[0].device};
  e.config["ranks"] = options.ranks.ranks;
  e.config["strategy"] = options.strategies;
  e.config["bucket_mb"] = options.bucket_mb;
  e.config["backend"] = options.backend;
  std::vector<std::shared_ptr<Ranks>> all;
  for (int64_t count : options.ranks.ranks) all.push_back(make_ranks(world, options.backend, count));
  for (const MeasuredRun& run : runs)
    for (const auto& ranks : all) {
      Group& g = e.groups.emplace_back();
      g.turns = int(options.turns);
      auto add = [&](const std::string& strategy, std::optional<double> mb) {
        g.cases.push_back(std::make_unique<DdpCase>(options, run, ranks, strategy, mb, make_model));
      };
      for (const std::string& strategy : options.strategies) {
        if (strategy != "bucketed") add(strategy, {});
        for (double mb : strategy == "bucketed" ? options.bucket_mb : std::vector<double>{}) add(strategy, mb);
      }
      for (const std::string& peer : options.peers)
        g.cases.push_back(torch_ddp_case(world, options, run, ranks->count, peer));
    }
  e.before = [&](Progress& progress) {
    progress.now("measuring all-reduces for the bucket model");
    for (const auto& r : all)
      if (r->group && r->count > 1) {
        constexpr int64_t large = 64 << 20;
        r->call_s = all_reduce_seconds(*r->group, 4096, 30);
        r->bytes_per_s = double(large) / all_reduce_seconds(*r->group, large, 5);
      }
  };
  return run(world, e, output);
}

}  // namespace

int bench_ddp(const DdpOptions& given, const OutputOptions& output, const MakeModel& make_model) {
  DdpOptions o = given;
  if (o.strategies.empty()) o.strategies = {"none", "naive", "flat", "overlap", "bucketed"};
  if (o.bucket_mb.empty()) o.bucket_mb = {25};
  for (const std::string& s : o.strategies)
    if (s != "none") dist::strategy_named(s);
  for (const std::string& peer : o.peers) check_ddp_peer(peer);
  dist::check_backend(o.backend);
  for (double mb : o.bucket_mb) check(mb > 0, "--bucket-mb must be positive, and is {}", mb);
  check(o.turns >= 1 && o.turns <= 1000, "--turns must be between 1 and 1000, not {}", o.turns);
  check(o.check_replicas >= 0, "--check-replicas must not be negative, and is {}; 0 means never", o.check_replicas);
  fill_in(o.ranks);
  SweepOptions sweep = o.sweep;
  if (!sweep.device) sweep.device = "cpu";
  check(*sweep.device == "cpu", "--device {}: ranks run on the CPU; leave it out, or use --device cpu", *sweep.device);
  if (!sweep.threads) divide_threads();
  set_up_process(sweep);
  sweep = with_defaults(sweep);
  check(sweep.warmup.size() == 1, "--warmup: give one number of untimed steps");
  check(sweep.pass == std::vector<std::string>{"step"}, "--pass: data parallelism is about whole steps; leave it out");
  expand(sweep);  // refuses before any rank is started
  if (is_first_rank()) {
    check_output(output);
    if (!o.trace.empty()) {
      std::error_code error;
      fs::create_directories(o.trace, error);
      check(!error && fs::is_directory(o.trace), "--trace {}: no folder can be made there ({})", o.trace,
            error.message());
    }
  }
  return on_ranks(o.ranks, [&](dist::World& world) { return bench_as_rank(world, o, sweep, output, make_model); });
}

}  // namespace sinter::lab
