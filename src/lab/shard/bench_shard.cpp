#include "lab/shard/bench_shard.h"

#include "lab/memory/memory_json.h"
#include "lab/shard/result.h"

namespace sinter::lab {
namespace {

class ShardCase : public RankedCase {
 public:
  ShardCase(const ShardBenchOptions& options, const MeasuredRun& run, const std::shared_ptr<Ranks>& ranks,
            ShardLevel level, const MakeModel& make_model)
      : RankedCase(options, run, ranks, name_of(level), "", make_model) {
    run_.group = ranks->group.get();
    run_.shard = options.shard.options(level);
    run_.data_parallel = {dist::Strategy::bucketed, options.shard.bucket_mb};
    result_.level = name_of(level);
    if (level == ShardLevel::none) result_.bucket_mb = options.shard.bucket_mb;
    result_.reshard_after_forward = run_.shard.reshard_after_forward;
    result_.accumulate_unsharded = run_.shard.accumulate_unsharded;
  }

 private:
  RankedResult& result() override { return result_; }

  MemoryStats stats() const { return allocator_of(run_.device).stats(); }
  RankMemory::Held held() const {
    MemoryStats s = stats();
    return {s.allocated, categories_json(s.allocated_by)};
  }
  void made() override { held_.after_init = held(); }
  void phase_ended(Phase phase) override {
    if (phase == Phase::backward) held_.before_step = held();
  }
  void stepped(Workload&, int64_t) override { held_.after_step = held(); }
  void finished(Workload&, RankSteps& mine) override {
    held_.peak_by = categories_json(stats().at_peak_by);
    mine.memory = held_;
    mine.predicted_peak_bytes = need_.bytes();
  }

  Json row() override {
    result_.parameters = need_.walk.parameters;
    result_.bytes_moved = need_.wire_bytes;
    result_.collectives = need_.collectives;
    int64_t peak = 0;
    for (const RankSteps& r : result_.by_rank) {
      RankMemory& most = result_.memory;
      auto keep_larger = [](RankMemory::Held& a, const RankMemory::Held& b) {
        if (b.bytes.value_or(0) > a.bytes.value_or(0)) a = b;
      };
      keep_larger(most.after_init, r.memory.after_init);
      keep_larger(most.before_step, r.memory.before_step);
      keep_larger(most.after_step, r.memory.after_step);
      if (r.peak_bytes > peak) peak = r.peak_bytes, most.peak_by = r.memory.peak_by;
      result_.predicted_peak_bytes =
          std::max(result_.predicted_peak_bytes.value_or(0), r.predicted_peak_bytes.value_or(0));
    }
    return result_;
  }

  RankMemory held_;  // by this rank
  ShardResult result_;
};

}  // namespace

int bench_shard(const ShardBenchOptions& o, const OutputOptions& output, const MakeModel& make_model) {
  std::vector<ShardLevel> levels = o.shard.all_levels();
  for (int i = 0; o.shard.levels.empty() && i < shard_level_count; ++i) levels.push_back(ShardLevel(i));
  RankedBench bench{"bench shard", Json::object()};
  for (ShardLevel level : levels) bench.config["shard"].push_back(name_of(level));
  bench.config["bucket_mb"] = o.shard.bucket_mb;
  bench.config["reshard_after_forward"] = o.shard.options(levels[0]).reshard_after_forward;
  bench.config["accumulate_unsharded"] = o.shard.accumulate_unsharded;
  bench.add_cases = [&](const MeasuredRun& run, const std::shared_ptr<Ranks>& ranks, Group& g) {
    for (ShardLevel level : levels) g.cases.push_back(std::make_unique<ShardCase>(o, run, ranks, level, make_model));
  };
  return bench_ranked(bench, o, output);
}

}  // namespace sinter::lab
