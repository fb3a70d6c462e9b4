#include "lab/allreduce/bench_allreduce.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/clock.h"
#include "dist/group.h"
#include "dist/mps.h"
#include "lab/allreduce/pattern.h"
#include "lab/peer_script.h"
#include "ops/context.h"
#include "ops/dispatch.h"
#include "system/host.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t aside_bytes = int64_t(64) << 20;  // of a rank, besides its buffer: sockets, what gloo receives into
constexpr double piece_s = 0.25;                    // that ranks run without a word from rank 0

DType dtype_named(const std::string& name) {
  for (DType t : dtypes)
    if (name == name_of(t)) return t;
  fail_with(ErrorKind::usage, "--dtype {}: unknown; choose fp32, bf16 or fp16", name);
}

// Made once each, by all ranks of the world in the same order.
class Groups {
 public:
  Groups(dist::World& world, DeviceType device) : world(world), device(device) {}
  // Null where this rank does not belong to it.
  ProcessGroup* get(const std::string& backend, int64_t ranks) {
    auto [at, is_new] = groups_.try_emplace({backend, ranks});
    if (is_new) {
      std::vector<int> first(size_t(ranks), 0);
      std::iota(first.begin(), first.end(), 0);
      at->second = world.make_group(backend, first, false, device);
    }
    return at->second.get();
  }
  dist::World& world;
  const DeviceType device;

 private:
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<ProcessGroup>> groups_;
};

class AllReduceCase : public Case {
 public:
  AllReduceCase(const AllReduceConfig& config, const AllReduceOptions& options, Groups& groups)
      : config_(config), options_(options), groups_(groups), world_(groups.world) {}

  std::string text() const override { return config_.text(); }

  plan::Fit fit() override {
    int64_t here = 0;  // ranks of this host
    for (int r = 0; r < config_.ranks; ++r) here += world_.host_of(r) == world_.host_of(world_.rank());
    // On GPUs the host holds what is checked, and for some backends what is on its way.
    need_ = here * ((groups_.device == DeviceType::cpu ? 1 : 3) * config_.bytes + aside_bytes);
    int64_t free = host_free_bytes();
    std::string why = first_of_all(
        world_, need_ <= free ? ""
                              : fmt::format("{} on a host need {}, {} are free; use a smaller --mb, or fewer --ranks",
                                            here == 1 ? "1 rank" : fmt::format("{} ranks", here),
                                            bytes_text(double(need_)), bytes_text(double(free))));
    return {why.empty(), free, why, ""};
  }
  Json does_not_fit(const std::string& reason, int64_t free_bytes) override {
    AllReduceResult r;
    r.config = config_;
    r.status = "oom";
    r.reason = reason;
    r.need_bytes = need_;
    r.free_bytes = free_bytes;
    return r;
  }

  bool run(const Turn& turn, Progress& progress) override {
    if (turn.share(options_.steps) == 0) return true;
    ProcessGroup* group = groups_.get(config_.backend, config_.ranks);
    {
      Tensor buffer = memory_for(group);
      measure(group, buffer, turn, progress);
    }
    allocator_of(groups_.device).release_cached();
    collect();
    return true;
  }

  Json rows() override {
    return by_rank_.empty() ? Json::array() : Json::array({all_reduce_result(config_, by_rank_, wrong_)});
  }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return Case::outcome(r);
    std::string time = significant(r["median_ms"].get<double>(), 4) + " ms";
    return wrong_.empty() ? time : fmt::format("{}, but the sum is wrong: {}", time, wrong_);
  }

 private:
  // One rank that has none ends it for all: the others would wait for it.
  Tensor memory_for(ProcessGroup* group) {
    Tensor buffer;
    std::string why;
    try {
      void* pool = group ? group->pool() : nullptr;
      Dims dims{config_.elements()};
      if (pool) buffer = empty_in_pool(dims, config_.dtype, groups_.device, pool);
      else if (group) buffer = empty(dims, config_.dtype, groups_.device);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::memory) throw;
      why = e.what();
    }
    why = first_of_all(world_, why);
    if (!why.empty()) fail_with(ErrorKind::memory, "{}", why);
    return buffer;
  }

  // Rank 0 says piece by piece how many runs follow. Ranks that do not belong to the group sleep in between, and none
  // waits so long that it would give up.
  void measure(ProcessGroup* group, const Tensor& buffer, const Turn& turn, Progress& progress) {
    mine_ = {};
    int64_t least = turn.share(std::min<int64_t>(options_.steps, config_.bytes <= 100'000'000 ? 10 : 3));
    int64_t most = turn.share(options_.steps), begin = 0, last = 0;
    for (int64_t i = 0;;) {
      int64_t now = steady_ns(), more = 1, timed = i - options_.warmup;
      if (timed <= 0) begin = now;
      if (timed >= 0) {
        bool late = double(now - begin) > 1e9 * options_.seconds / turn.count;
        more = std::min(std::max<int64_t>(1, int64_t(1e9 * piece_s / double(std::max<int64_t>(1, last)))),
                        (late ? least : most) - timed);
        progress.now(fmt::format("{}: timed {}/{}", text(), timed, most));
      }
      more = std::stoll(world_.share(std::to_string(interrupted() ? 0 : more)));
      if (more <= 0) return;
      for (int64_t end = i + more; i < end; ++i) {
        int64_t from = steady_ns();
        if (group) run_once(*group, buffer, i >= options_.warmup);
        last = steady_ns() - from;
      }
    }
  }

  void run_once(ProcessGroup& group, const Tensor& buffer, bool timed) {
    Pattern pattern(config_.dtype, group.size(), group.rank(), runs_++);
    bool gpu = groups_.device == DeviceType::cuda;
    DeviceBackend& device = backend_of(groups_.device);
    void* stream = current_stream(groups_.device);
    auto bytes = size_t(config_.bytes);
    if (gpu) host_.resize(bytes);
    void* numbers = gpu ? host_.data() : buffer.data();
    pattern.fill(numbers, config_.elements());
    if (gpu) device.copy_from_host(buffer.data(), numbers, bytes, stream), device.synchronize(stream);
    meet(group);
    int64_t begin = steady_ns();
    group.run({CollectiveKind::all_reduce, ReduceKind::sum, config_.dtype, 0, config_.elements()}, buffer.data(),
              buffer.data(), stream);
    device.synchronize(stream);
    double ms = ms_since(begin);
    group.throw_if_failed();
    meet(group);  // or one that is still timed would have to share a core with one that checks
    if (timed) mine_.samples_ms.push_back(ms);
    if (gpu) device.copy_to_host(numbers, buffer.data(), bytes, stream);
    if (std::string wrong = pattern.fault(numbers, config_.elements()); !wrong.empty() && mine_.wrong.empty())
      mine_.wrong = fmt::format("rank {}, run {}: {}", group.rank(), runs_, wrong);
  }

  static void meet(ProcessGroup& group) { group.run({CollectiveKind::barrier}, nullptr, nullptr, nullptr); }

  // All ranks then have the same results, and end alike.
  void collect() {
    std::vector<std::string> all =
        from_all(world_, Json{{"samples_ms", mine_.samples_ms}, {"wrong", mine_.wrong}}.dump());
    by_rank_.resize(size_t(config_.ranks));
    for (size_t r = 0; r < by_rank_.size(); ++r) {
      Json theirs = Json::parse(all[r]);
      by_rank_[r].rank = int64_t(r);
      by_rank_[r].host = world_.host_of(int(r));
      if (!world_.gpus().empty()) by_rank_[r].device_uuid = world_.gpus()[r];
      for (double ms : theirs["samples_ms"]) by_rank_[r].samples_ms.push_back(ms);
      if (wrong_.empty()) wrong_ = theirs["wrong"];
    }
  }

  AllReduceConfig config_;
  const AllReduceOptions& options_;
  Groups& groups_;
  dist::World& world_;
  int64_t need_ = 0, runs_ = 0;
  std::vector<char> host_;  // of a buffer on a GPU: what goes there, and comes back to be checked
  struct {
    std::vector<double> samples_ms;
    std::string wrong;  // the first wrong sum
  } mine_;              // what this rank saw in this turn
  std::vector<RankTimes> by_rank_;
  std::string wrong_;
};

// PyTorch's own ranks, in rank 0's hands while ours wait. Its sums are not checked.
class TorchGlooCase : public Case {
 public:
  TorchGlooCase(const AllReduceConfig& config, const AllReduceOptions& options, dist::World& world)
      : config_(config), options_(options), world_(world) {}
  std::string text() const override { return config_.text(); }

  bool run(const Turn& turn, Progress& progress) override {
    int64_t steps = turn.share(std::min<int64_t>(options_.steps, config_.bytes <= 100'000'000 ? 20 : 3));
    std::string stop;
    if (world_.rank() == 0 && steps > 0 && why_not_.empty()) {
      progress.now(text());
      Json reply = peer_reply({options_.python, peer_script("torch_ranks.py"), "--what", "allreduce", "--ranks",
                               std::to_string(config_.ranks), "--bytes", std::to_string(config_.bytes), "--warmup",
                               std::to_string(options_.warmup), "--steps", std::to_string(steps)},
                              why_not_);
      if (reply.is_null() && why_not_.empty()) stop = "stop";  // interrupted
      if (reply.is_object()) add(reply);
    }
    return world_.share(stop).empty();
  }
  Json rows() override {
    if (by_rank_.empty()) return Json::array();
    AllReduceResult r = all_reduce_result(config_, by_rank_, "");
    r.verified.reset();
    r.peer = machine_;
    return Json::array({r});
  }
  std::string outcome(const Json& r) const override { return significant(r["median_ms"].get<double>(), 4) + " ms"; }
  std::vector<std::string> notes() const override {
    return why_not_.empty() ? std::vector<std::string>{} : std::vector<std::string>{"torch-gloo: " + why_not_};
  }

 private:
  void add(const Json& reply) {
    machine_ = reply.value("machine", Json::object());
    by_rank_.resize(size_t(config_.ranks));
    for (const Json& theirs : reply["results"][0]["by_rank"]) {
      RankTimes& r = by_rank_[theirs["rank"].get<size_t>()];
      r.rank = theirs["rank"];
      for (double ms : theirs["samples_ms"]) r.samples_ms.push_back(ms);
    }
  }

  AllReduceConfig config_;
  const AllReduceOptions& options_;
  dist::World& world_;
  std::vector<RankTimes> by_rank_;
  Json machine_;
  std::string why_not_;
};

std::vector<AllReduceConfig> configs_of(const AllReduceOptions& o) {
  std::vector<AllReduceConfig> all;
  for (int64_t ranks : o.ranks.ranks)
    for (double mb : o.mb)
      for (const std::string& dtype : o.dtype)
        for (const std::string& backend : o.backend) {
          DType type = dtype_named(dtype);
          int64_t elements = std::max<int64_t>(1, std::llround(mb * 1e6) / size_of(type));
          all.push_back({ranks, backend, elements * size_of(type), type});
          if (o.torch && &backend == &o.backend.back() && type == DType::f32)
            all.push_back({ranks, "torch-gloo", all.back().bytes, type});
        }
  return all;
}

bool comparable(const AllReduceConfig& a, const AllReduceConfig& b) {
  return a.ranks == b.ranks && a.bytes == b.bytes && a.dtype == b.dtype;
}

}  // namespace

void check_options(const AllReduceOptions& o) {
  for (double mb : o.mb) check(mb > 0 && mb <= 1e9, "--mb must be positive and at most 10⁹, not {}", mb);
  for (const std::string& b : o.backend) {
    check(b != "auto" && b != "hosts", "--backend {}: name what is to be compared; the default is all there is", b);
    dist::check_backend(b);
  }
  for (const std::string& t : o.dtype)
    for (int64_t n : o.ranks.ranks)
      check(n <= Pattern::most_ranks(dtype_named(t)),
            "--dtype {} with --ranks {}: sums of so many are not exact and could not be verified; use fp32", t, n);
  check(o.warmup >= 0 && o.warmup <= 1000000, "--warmup must be between 0 and 1000000, not {}", o.warmup);
  check(o.steps >= 1 && o.steps <= 1000000, "--steps must be between 1 and 1000000, not {}", o.steps);
  check(o.seconds > 0, "--seconds must be positive, not {}", o.seconds);
  check(o.turns >= 1 && o.turns <= 1000, "--turns must be between 1 and 1000, not {}", o.turns);
}

int bench_allreduce(dist::World& world, const AllReduceOptions& given, const OutputOptions& output) {
  AllReduceOptions o = given;
  DeviceType device = device_named(o.device.value_or("cpu"));
  bool gpu = device == DeviceType::cuda;
  if (gpu) world.exchange_gpus();
  if (given.backend.empty()) {
    if (gpu && world.hosts() == 1) o.backend.push_back("ipc");
    if (gpu && dist::nccl_missing_reason().empty()) o.backend.push_back("nccl");
    if (world.hosts() == 1) o.backend.push_back("shm");
    if (dist::has_gloo() || o.backend.empty()) o.backend.push_back("gloo");
  }
  for (const std::string& b : o.backend) world.choose(b, {}, device);  // refuses what these ranks cannot do
  Experiment e{"bench allreduce",
               {{"ranks", o.ranks.ranks},
                {"mb", o.mb},
                {"backend", o.backend},
                {"device", name_of(device)},
                {"dtype", o.dtype},
                {"warmup", o.warmup},
                {"steps", o.steps},
                {"seconds", o.seconds},
                {"timeout", o.ranks.timeout},
                {"check_collectives", o.ranks.check_collectives},
                {"deterministic", o.ranks.deterministic},
                {"launcher", world.me().launcher},
                {"world", world.size()},
                {"hosts", world.hosts()},
                {"cores", host_cores()}},
               device};
  if (gpu) e.config["share_a_gpu"] = world.share_a_gpu(), e.config["mps"] = dist::mps_runs();
  Groups groups(world, device);
  e.groups = groups_of(configs_of(o), comparable, [&](const AllReduceConfig& c) -> std::unique_ptr<Case> {
    if (c.backend == "torch-gloo") return std::make_unique<TorchGlooCase>(c, o, world);
    return std::make_unique<AllReduceCase>(c, o, groups);
  });
  for (Group& g : e.groups) g.turns = int(o.turns);
  e.finish = [](Json& record) { record["fits"] = fits_of(record["results"]); };
  e.exit_code = [](const Json& results) {
    auto wrong = [](const Json& r) { return r["status"] == "wrong"; };
    return std::any_of(results.begin(), results.end(), wrong) ? int(ErrorKind::numeric) : exit_code_of(results);
  };
  return run(world, e, output);
}

}  // namespace sinter::lab
