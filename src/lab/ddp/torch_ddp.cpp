#include "backend/cpu/thread_pool.h"
#include "lab/ddp/bench_ddp.h"
#include "lab/ddp/result.h"
#include "lab/peer_script.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

bool is_compiled(const std::string& peer) { return peer.ends_with("-compiled"); }

class TorchDdpCase : public Case {
 public:
  TorchDdpCase(dist::World& world, const DdpOptions& options, const MeasuredRun& run, int64_t ranks,
               const std::string& peer)
      : world_(world), options_(options), peer_(peer) {
    result_.run = run;
    result_.engine = peer;
    result_.ranks = ranks, result_.threads = cpu::threads();
    bool gpu = run.device == DeviceType::cuda;
    result_.backend = gpu ? "nccl" : "gloo", result_.backend_why = "PyTorch's own";
    if (gpu) result_.share_a_gpu = world.share_a_gpu();
    result_.strategy = what() == "ddp" ? "bucketed" : what();
    if (what() == "ddp") result_.bucket_mb = options.bucket_mb.back();
  }

  std::string text() const override {
    return fmt::format("{}, {} ranks, {}", result_.run.text(), result_.ranks, peer_);
  }

  bool run(const Turn& turn, Progress&) override {
    int64_t timed = turn.share(result_.run.steps);
    std::string stop;
    if (world_.rank() == 0 && timed > 0 && why_not_.empty()) {
      Json reply = peer_reply(command(timed), why_not_);
      if (reply.is_null() && why_not_.empty()) stop = "stop";  // interrupted
      if (reply.is_object()) add(reply);
    }
    return world_.share(stop).empty();
  }
  Json rows() override {
    if (result_.samples_ms.empty()) return Json::array();
    result_.add_statistics();
    return Json::array({result_});
  }
  std::vector<std::string> notes() const override {
    return why_not_.empty() ? std::vector<std::string>{} : std::vector<std::string>{peer_ + ": " + why_not_};
  }
  std::string outcome(const Json& r) const override {
    return fmt::format("{} ms", significant(r["median_ms"].get<double>(), 4));
  }

 private:
  // none, ddp or fsdp, of torch-…, which may end with -compiled.
  std::string what() const {
    std::string name = peer_.substr(peer_.find('-') + 1);
    return name.substr(0, name.find('-'));
  }
  std::vector<std::string> command(int64_t timed) const {
    PeerCommand c = peer_command(options_.python, "torch_ranks.py", result_.run);
    c.add("--what", what());
    c.add("--device", name_of(result_.run.device));
    c.add("--variant", is_compiled(peer_) ? "torch-compiled" : "torch-best");
    c.add("--ranks", result_.ranks);
    c.add("--threads", result_.threads);
    c.add("--bucket-mb", result_.bucket_mb.value_or(25));
    c.add("--steps", timed);
    return c.words;
  }

  void add(const Json& reply) {
    const Json& theirs = reply["results"][0];
    for (double ms : theirs.at("samples_ms")) result_.samples_ms.push_back(ms);
    result_.engine = fmt::format("{} ({})", peer_, reply.value("torch", "?"));
    result_.peer = reply.value("machine", Json::object());
    if (theirs.contains("peak_bytes")) result_.peak_bytes = theirs["peak_bytes"].get<int64_t>();
  }

  dist::World& world_;
  const DdpOptions& options_;
  std::string peer_, why_not_;
  DdpResult result_;
};

}  // namespace

void check_ddp_peer(const std::string& peer) {
  for (const char* known : {"torch-ddp", "torch-ddp-compiled", "torch-fsdp", "torch-none", "torch-none-compiled"})
    if (peer == known) return;
  fail_with(ErrorKind::usage,
            "--peer {}: unknown; choose torch-ddp, torch-fsdp, torch-none, torch-ddp-compiled or torch-none-compiled",
            peer);
}

std::unique_ptr<Case> torch_ddp_case(dist::World& world, const DdpOptions& options, const MeasuredRun& run,
                                     int64_t ranks, const std::string& peer) {
  return std::make_unique<TorchDdpCase>(world, options, run, ranks, peer);
}

}  // namespace sinter::lab
