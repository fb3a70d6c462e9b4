#include "lab/profile/profile_model.h"

#include "core/check.h"
#include "lab/driver.h"
#include "lab/tuning.h"
#include "system/units.h"
#include "train/workload.h"

namespace sinter::lab {
namespace {

// What the cases of a profile share. The trace is handed out, not written: a full disk must not cost the measurement.
struct Tools {
  const ProfileOptions& options;
  Profiler profiler;
  plan::Peaks peaks;
  std::string trace = "";
};

// One configuration, whatever it is.
class ProfileCase : public Case {
 public:
  ProfileCase(Tools& tools, DeviceType device, const std::string& text, const Json& config)
      : tools_(tools), device_(device), text_(text), config_(config) {}

  std::string text() const override { return text_; }
  Json does_not_fit(const std::string& reason, int64_t) override {
    Json r = config_;
    r["status"] = "oom";
    r["reason"] = reason;
    return r;
  }
  bool run(const Turn&, Progress&) override {
    allocator_of(device_).release_cached();
    Roofline roofline = {tools_.peaks.product(dtype()), tools_.peaks.copy()};  // while there is room to measure them
    plan::Floor least = floor();
    restart_product_tuning();
    with_work([&](const Profiler::Work& work, int64_t warmup, int64_t passes) {
      bool traced = !tools_.options.trace.empty();
      std::optional<Profile> p = tools_.profiler.run(work, warmup, passes, traced);
      if (!p) return;
      if (traced) tools_.trace = to_kineto(p->trace);
      result_ = profile_result(config_, *p, tools_.options.range, roofline, least);
      result_->tuning = tuning_of(product_tuning());
    });
    allocator_of(device_).release_cached();
    return result_.has_value();
  }
  Json rows() override { return result_ ? Json::array({*result_}) : Json::array(); }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return Case::outcome(r);
    std::string tuned = tuning_text(r);
    return fmt::format("{} ms a pass; recorded {} ms, of which {} ms busy{}",
                       significant(r["wall_ms"].get<double>(), 4), significant(r["profiled_mean_ms"].get<double>(), 4),
                       significant(r["device_time"]["busy_ms"].get<double>(), 4), tuned.empty() ? "" : "; " + tuned);
  }

 protected:
  using Use = std::function<void(const Profiler::Work&, int64_t warmup, int64_t passes)>;
  virtual void with_work(const Use& use) = 0;  // makes the work, calls back with it, and destroys it
  virtual plan::Floor floor() { return {}; }
  std::string dtype() const { return config_["dtype"]; }

  Tools& tools_;

 private:
  DeviceType device_;
  std::string text_;
  Json config_;
  std::optional<ProfileResult> result_;
};

Json config_with_reason(const MeasuredRun& c) {
  Json config = config_of(c);
  config["attention_why"] = c.attention_why;
  return config;
}

class ModelProfile : public ProfileCase {
 public:
  ModelProfile(Tools& tools, const MeasuredRun& run, const MakeModel& make_model)
      : ProfileCase(tools, run.device, run.text(), config_with_reason(run)), run_(run), make_model_(make_model) {}

  plan::Fit fit() override {
    need_ = plan::predict(run_, target_of(run_.device), make_model_);
    return plan::fit_of(need_, allocator_of(run_.device).free_bytes());
  }

 private:
  plan::Floor floor() override { return plan::floor_of(run_, need_, tools_.peaks); }
  void with_work(const Use& use) override {
    Workload work(run_, run_.device, make_model_);
    use([&] { work.run(); }, run_.warmup, run_.steps);
  }

  const MeasuredRun& run_;
  const MakeModel& make_model_;
  plan::Prediction need_;
};

class AttentionProfile : public ProfileCase {
 public:
  AttentionProfile(Tools& tools, const AttentionConfig& config, int64_t warmup, int64_t passes)
      : ProfileCase(tools, config.device, config.text(), to_json(config)),
        config_(config),
        warmup_(warmup),
        passes_(passes) {}

  plan::Fit fit() override {
    int64_t need = predict(config_).peak_bytes, free = allocator_of(config_.device).free_bytes();
    return {need <= free, free,
            fmt::format("needs {}, {} are free", bytes_text(double(need)), bytes_text(double(free))), ""};
  }

 private:
  void with_work(const Use& use) override {
    AttentionWork work(config_, config_.device);
    use([&] { work.run(); }, warmup_, passes_);
  }

  const AttentionConfig& config_;
  int64_t warmup_, passes_;
};

// A case for each configuration, each by itself.
template <class Config, class Make>
int profile_all(const std::string& command, Json config, const std::vector<Config>& configs,
                const ProfileOptions& options, const OutputOptions& output, const Make& make) {
  check(options.trace.empty() || options.trace.ends_with(".json"), "--trace {}: the name must end in .json",
        options.trace);
  check(options.trace.empty() || configs.size() == 1,
        "--trace {}: a trace is of one configuration, but these flags make {}", options.trace, configs.size());
  check_output(output, {{"--trace", options.trace}});  // before the profiler takes hold of the device
  DeviceType device = configs[0].device;
  config["top"] = options.top;
  Tools tools{options, Profiler(device, options.profiler), plan::Peaks(device)};
  Experiment e{command, config, device};
  for (const Config& c : configs) e.groups.emplace_back().cases.push_back(make(tools, c));
  e.files = {{"--trace", options.trace, [&] { return tools.trace; }}};
  return run(e, output);
}

}  // namespace

int profile_model(const SweepOptions& given, const ProfileOptions& options, const OutputOptions& output,
                  const MakeModel& make_model) {
  SweepOptions sweep = with_defaults(given);
  set_up_process(sweep);
  check(sweep.warmup.size() == 1, "--warmup: give one number of untimed passes; `bench model` compares several");
  return profile_all(
      "profile model", to_json(sweep), expand(sweep), options, output,
      [&](Tools& tools, const MeasuredRun& c) { return std::make_unique<ModelProfile>(tools, c, make_model); });
}

int profile_attention(const std::vector<AttentionConfig>& configs, int64_t warmup, int64_t passes,
                      const ProfileOptions& options, const OutputOptions& output) {
  check(warmup >= 0 && warmup <= 1000000, "--warmup must be between 0 and 1000000, not {}", warmup);
  check(passes >= 1 && passes <= 1000000, "--steps must be between 1 and 1000000, not {}", passes);
  Json config = configs.size() == 1 ? to_json(configs[0]) : Json::object();
  return profile_all("profile attention", config, configs, options, output,
                     [&](Tools& tools, const AttentionConfig& c) {
                       return std::make_unique<AttentionProfile>(tools, c, warmup, passes);
                     });
}

}  // namespace sinter::lab
