#include "lab/ddp/bench_ddp.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/clock.h"
#include "lab/ddp/result.h"
#include "ops/ops.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// Of a group of ranks, for the bucket model: what a call costs by itself, and the rate of a large one. 0: not known.
struct AllReduceRate {
  double call_s = 0, bytes_per_s = 0;
};
using Rates = std::map<int64_t, AllReduceRate>;  // by the number of ranks

// As a step makes it: on the communication stream, and waited for.
double all_reduce_seconds(ProcessGroup& group, int64_t bytes, int times, DeviceType device) {
  int64_t n = std::max<int64_t>(1, bytes / 4);
  Tensor x = empty_in_pool({n}, DType::f32, device, group.pool());
  fill(x, 0);
  std::vector<double> seconds;
  for (int i = 0; i < times + 1; ++i) {
    group.run({}, nullptr, nullptr, nullptr);
    synchronize(device);
    int64_t begin = steady_ns();
    all_reduce(x, group, ReduceKind::average);
    join_communication(device);
    synchronize(device);
    if (i > 0) seconds.push_back(double(steady_ns() - begin) / 1e9);
  }
  return statistics_of(seconds).median;
}

bool is_update(const Activity& a) {
  const RangeNode* phase = range_of(a.range).phase();
  return phase && phase->name == "optimizer";
}

// One step: when it did what. Pieces closer than what an eye can tell apart are joined.
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
    auto& lane = lanes[is_communication(*a) ? "communication" : is_update(*a) ? "updates" : "compute"];
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

class DdpCase : public RankedCase {
 public:
  DdpCase(const DdpOptions& options, const MeasuredRun& run, const std::shared_ptr<Ranks>& ranks,
          const std::string& strategy, std::optional<double> bucket_mb, const Rates& rates, const MakeModel& make_model)
      : RankedCase(options, run, ranks, strategy, bucket_mb ? fmt::format("{} MiB", *bucket_mb) : "", make_model),
        check_replicas_(options.check_replicas),
        rates_(rates) {
    result_.strategy = strategy;
    result_.bucket_mb = bucket_mb;
    if (strategy == "none") return;
    run_.group = ranks->group.get();
    run_.data_parallel = {dist::strategy_named(strategy), bucket_mb.value_or(25)};
  }

 private:
  RankedResult& result() override { return result_; }
  Json row() override { return result_; }

  void stepped(Workload& work, int64_t step) override {
    if (check_replicas_ > 0 && step % check_replicas_ == 0 && run_.group)
      dist::check_replicas(group(), work.trainer().parameters(), step);
  }

  void finished(Workload& work, RankSteps&) override {
    const auto* d = dynamic_cast<const dist::DataParallel*>(work.trainer().parallel());
    if (!d) return;
    int64_t elements = 0;
    for (const auto& b : d->buckets()) elements += b.end - b.begin;
    auto n = double(d->group().size());
    result_.collectives = int64_t(d->buckets().size()) + 1;  // and the loss
    result_.gradient_bytes = elements * size_of(work.trainer().parameters().master().dtype());
    result_.wire_bytes = 2 * (n - 1) / n * double(*result_.gradient_bytes);
    double s = double(*result_.gradient_bytes), count = double(d->buckets().size());
    auto [o, w] = rates_.at(ranks_->count);
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

  void recorded(const Trace& trace) override {
    if (ranks_->world.rank() == 0) result_.lanes = lanes_of(trace);
  }

  int64_t check_replicas_;
  const Rates& rates_;
  DdpResult result_;
};

}  // namespace

int bench_ddp(const DdpOptions& given, const OutputOptions& output, const MakeModel& make_model) {
  DdpOptions o = given;
  if (o.strategies.empty()) o.strategies = {"none", "naive", "flat", "overlap", "bucketed"};
  if (o.bucket_mb.empty()) o.bucket_mb = {25};
  for (const std::string& s : o.strategies)
    if (s != "none") dist::strategy_named(s);
  for (const std::string& peer : o.peers) check_ddp_peer(peer);
  for (double mb : o.bucket_mb) check(mb > 0, "--bucket-mb must be positive, and is {}", mb);
  check(o.check_replicas >= 0, "--check-replicas must not be negative, and is {}; 0 means never", o.check_replicas);
  Rates rates;
  RankedBench bench{"bench ddp", {{"strategy", o.strategies}, {"bucket_mb", o.bucket_mb}}};
  bench.add_cases = [&](const MeasuredRun& run, const std::shared_ptr<Ranks>& ranks, Group& g) {
    auto add = [&](const std::string& strategy, std::optional<double> mb) {
      g.cases.push_back(std::make_unique<DdpCase>(o, run, ranks, strategy, mb, rates, make_model));
    };
    for (const std::string& strategy : o.strategies) {
      if (strategy != "bucketed") add(strategy, {});
      for (double mb : strategy == "bucketed" ? o.bucket_mb : std::vector<double>{}) add(strategy, mb);
    }
    for (const std::string& peer : o.peers) g.cases.push_back(torch_ddp_case(ranks->world, o, run, ranks->count, peer));
  };
  bench.before = [&](Ranks& ranks, DeviceType device, Progress& progress) {
    AllReduceRate& rate = rates[ranks.count];
    if (!ranks.group || ranks.count == 1) return;
    progress.now("measuring all-reduces for the bucket model");
    constexpr int64_t large = 64 << 20;
    rate = {all_reduce_seconds(*ranks.group, 4096, 30, device),
            double(large) / all_reduce_seconds(*ranks.group, large, 5, device)};
    allocator_of(device).release_cached();
  };
  return bench_ranked(bench, o, output);
}

}  // namespace sinter::lab
