// sinter plan best: of all ways to divide a model among so many devices, which are fastest.
#include "lab/command.h"

#include <algorithm>

#include "core/check.h"
#include "lab/config_text.h"
#include "lab/divided_model.h"
#include "lab/driver.h"
#include "lab/model_flags.h"
#include "lab/network_record.h"
#include "plan/machine.h"
#include "system/units.h"

namespace sinter::lab {

struct PlanBestOptions {
  SweepOptions sweep;
  std::string machine = "h100", network, memory;
  int64_t devices = 1, top = 10;
  std::optional<int64_t> global_batch;
  bool ungated = false;
};

struct BestResult {
  MeasuredRun run;
  plan::Layout layout;
  std::string shard;
  double step_ms = 0, exposed_ms = 0, bubble_ms = 0, tokens_per_s = 0, mfu = 0, memory_bytes = 0;
  bool fits = true;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    MeasuredRun::fields(self.run, f);
    f("status", std::string(self.fits ? "ok" : "does not fit"));
    f("devices", self.layout.devices());
    f("data", self.layout.data);
    f("tensor", self.layout.tensor);
    f("pipeline", self.layout.pipeline);
    f("interleave", self.layout.interleave);
    f("context", self.layout.context);
    f("shard", self.shard);
    f("recompute", self.layout.recompute);
    f("step_ms", self.step_ms);
    f("exposed_ms", self.exposed_ms);
    f("bubble_ms", self.bubble_ms);
    f("tokens_per_s", self.tokens_per_s);
    f("mfu", self.mfu);
    f("memory_bytes", self.memory_bytes);
    f("fits", self.fits);
  }
};

namespace {

constexpr double usable = 0.9;  // of a device's memory: closed forms do not see what is left over between blocks

constexpr double told_apart = 1.03;         // step times nearer than this are as good as the same
constexpr int64_t fewest_positions = 1024;  // of a context rank: with fewer, nobody divides sequences

int axes_of(const BestResult& r) {
  const plan::Layout& l = r.layout;
  return (l.data > 1) + (l.tensor > 1) + (l.pipeline > 1) + (l.interleave > 1) + (l.context > 1) + (l.recompute > 0) +
         (l.shard != plan::Layout::none);
}

constexpr const char* examples =
    R"(Nothing is run, and no GPU is needed. Every way to divide the model is looked at: data, tensor (inside a
node), pipeline (its stages in parts too) and context ranks, micro-batches, what data ranks shard,
recomputation. Those that fit are simulated from the model's shapes, as plan simulate --from shapes.

Examples:
  sinter plan best --size 2.7B --dtype bf16 --devices 64 --global-batch 512 --machine a100-40
  sinter plan best --config llama/config.json --dtype bf16 --ctx 8192 --devices 512 --top 20)";

class Search {
 public:
  Search(const PlanBestOptions& o, MeasuredRun run, plan::Machine machine, plan::Network network, double memory)
      : o_(o),
        run_(std::move(run)),
        machine_(std::move(machine)),
        network_(std::move(network)),
        memory_(memory),
        shape_(shape_of(run_, o.ungated)) {}

  // The fastest first; where nothing fits, the one that needs least.
  std::vector<BestResult> found(Progress& progress) {
    std::vector<BestResult> all;
    std::optional<BestResult> smallest;
    for_each_layout([&](const MeasuredRun& run, plan::Layout l, ShardLevel level) {
      ++looked_at;
      BestResult r{run, l, name_of(level)};
      r.memory_bytes = plan::memory_of_layers(shape_, l, run.precision.name, network_);
      r.fits = r.memory_bytes <= usable * memory_;
      if (!smallest || r.memory_bytes < smallest->memory_bytes) smallest = r;
      if (!r.fits) return;
      plan::SimulatedStep t = plan::simulate_layers(shape_, l, run.precision.name, machine_, network_);
      double tokens = double(*o_.global_batch * run.model.ctx);
      r.step_ms = 1e3 * t.seconds, r.exposed_ms = 1e3 * t.exposed, r.bubble_ms = 1e3 * t.bubble;
      r.tokens_per_s = tokens / t.seconds;
      r.mfu = tokens * shape_.flops_of_token() /
              (t.seconds * double(o_.devices) * machine_.product(run.precision.name).peak);
      all.push_back(r);
      if (all.size() % 500 == 0) progress.now(fmt::format("{} that fit, of {} ways", all.size(), looked_at));
    });
    fit = int64_t(all.size());
    if (all.empty() && smallest) all = {*smallest};
    std::stable_sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.step_ms < b.step_ms; });
    // Of those that predictions cannot tell apart the simplest.
    auto alike = std::find_if(all.begin(), all.end(), [&](auto& r) { return r.step_ms > told_apart * all[0].step_ms; });
    std::stable_sort(all.begin(), alike, [](auto& a, auto& b) { return axes_of(a) < axes_of(b); });
    if (int64_t(all.size()) > o_.top) all.resize(size_t(o_.top));
    return all;
  }
  int64_t looked_at = 0, fit = 0;

 private:
  template <class F> void for_each_layout(F&& f) {
    for (int64_t tensor = 1; tensor <= std::min(o_.devices, network_.devices_per_node); tensor *= 2)
      for (int64_t pipeline = 1; tensor * pipeline <= o_.devices && pipeline <= shape_.layers; pipeline *= 2)
        for (int64_t context = 1; tensor * pipeline * context <= o_.devices; context *= 2) {
          int64_t each = tensor * pipeline * context;
          if (context > 1 && shape_.ctx / context < fewest_positions) break;
          if (o_.devices % each || shape_.heads % tensor || shape_.d_ff % tensor || shape_.ctx % context) continue;
          int64_t data = o_.devices / each, sequences = *o_.global_batch / data;
          if (*o_.global_batch % data) continue;
          for (int64_t batch = 1; batch <= std::min<int64_t>(sequences, 16); batch *= 2) {
            if (sequences % batch) continue;
            for (int64_t parts : {1, 2, 4}) {
              // Parts of a stage take turns by as many micro-batches as there are stages.
              bool divides = shape_.layers % (pipeline * parts) == 0 && sequences / batch % pipeline == 0;
              if (parts > 1 && (pipeline == 1 || !divides)) continue;
              for (ShardLevel level :
                   {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
                if (level != ShardLevel::none && data == 1) continue;
                for (double recompute : {0.0, 1.0}) {
                  MeasuredRun run = run_;
                  run.batch = batch, run.accumulate = sequences / batch;
                  plan::Layout l = layout_of(run, level);
                  l.data = data, l.tensor = tensor, l.pipeline = pipeline, l.context = context, l.interleave = parts;
                  l.recompute = recompute, l.sequence_parallel = tensor > 1;
                  f(run, l, level);
                }
              }
            }
          }
        }
  }

  const PlanBestOptions& o_;
  MeasuredRun run_;
  plan::Machine machine_;
  plan::Network network_;
  double memory_;
  plan::Shape shape_;
};

int plan_best(const PlanBestOptions& options, const OutputOptions& output) {
  PlanBestOptions o = options;
  plan::Machine machine = plan::machine_named(o.machine);
  if (o.network.empty()) o.network = plan::network_beside(machine);
  plan::Network network = network_or_record(o.network);
  double memory = o.memory.empty() ? machine.memory_bytes : bytes_named("--memory", o.memory);
  check(o.devices >= 1 && o.devices <= 100000, "--devices must be between 1 and 100000, not {}", o.devices);
  check(o.top >= 1, "--top must be at least 1, not {}", o.top);
  if (!o.global_batch) o.global_batch = 8 * o.devices;
  check(*o.global_batch >= 1 && *o.global_batch <= 100000000, "--global-batch must be between 1 and 100000000, not {}",
        *o.global_batch);
  SweepOptions sweep = o.sweep;
  sweep.device = name_of(machine.target.type), sweep.pass = {"step"}, sweep.batch = {1}, sweep.accumulate = {};
  sweep.mode = {"compiled"}, sweep.no_tune = {};
  std::vector<MeasuredRun> runs = expand(with_defaults(sweep), machine.target);
  check(runs.size() == 1, "plan best is about one model, but these flags make {}", runs.size());
  machine.product(runs[0].precision.name);
  Json config = to_json(sweep);
  config.update(Json{{"devices", o.devices},
                     {"global_batch", *o.global_batch},
                     {"machine", machine.name},
                     {"machine_source", machine.source == plan::Machine::measured ? "measured" : "datasheet"},
                     {"network", network.name},
                     {"memory_bytes", memory}});
  Experiment e{"plan best", config};
  auto search = std::make_shared<Search>(o, runs[0], machine, network, memory);
  e.groups.emplace_back().cases.push_back(
      simple_case(runs[0].text(), [search](Progress& p) { return Json(search->found(p)); }));
  e.finish = [search](Json& record) {
    record["looked_at"] = search->looked_at;
    record["fit"] = search->fit;
  };
  e.exit_code = [search](const Json&) { return search->fit ? 0 : int(ErrorKind::memory); };
  return run(e, output);
}

View plan_best_view(const Json& record) {
  const Json &config = record.at("config"), &results = record.at("results");
  View view;
  if (results.empty()) return view;
  const Json& first = results.at(0);
  view.preamble = {
      fmt::format("{}, {}, ctx {}, {} sequences a step on {} × {} ({}), {} each; predicted, nothing was run.",
                  size_name(first), first.at("dtype").get<std::string>(), first.at("ctx").get<int64_t>(),
                  grouped(config.at("global_batch").get<int64_t>()), grouped(config.at("devices").get<int64_t>()),
                  config.value("machine", "?"), config.value("machine_source", "?"),
                  bytes_text(config.at("memory_bytes").get<double>())),
      fmt::format("{} of {} ways to divide it fit.", grouped(record.value("fit", 0L)),
                  grouped(record.value("looked_at", 0L)))};
  if (!first.at("fits").get<bool>()) {
    view.preamble.push_back(
        fmt::format("Nothing fits; what needs least takes {}. Give more --devices, or a --machine with more memory.",
                    bytes_text(first.at("memory_bytes").get<double>())));
    return view;
  }
  Table t;
  t.title = "The fastest";
  t.columns = {{"data"},
               {"tensor"},
               {"pipeline"},
               {"parts"},
               {"context"},
               {"micro-batch"},
               {"times"},
               {"shard", true},
               {"recompute", true},
               {"step ms"},
               {"exposed ms", false, 2},
               {"bubble ms", false, 3},
               {"tokens/s"},
               {"MFU %"},
               {"GiB"}};
  auto count = [](const Json& r, const char* field) { return std::to_string(r.at(field).get<int64_t>()); };
  auto many = [](const Json& r, const char* field) {
    int64_t n = r.at(field);
    return n > 1 ? std::to_string(n) : "";
  };
  for (const Json& r : results)
    t.rows.push_back({count(r, "data"), many(r, "tensor"), many(r, "pipeline"), many(r, "interleave"),
                      many(r, "context"), count(r, "batch"), count(r, "accumulate"), r.at("shard"),
                      r.at("recompute").get<double>() > 0 ? "yes" : "", significant(r.at("step_ms"), 4),
                      significant(r.at("exposed_ms"), 3), significant(r.at("bubble_ms"), 3),
                      grouped(std::llround(r.at("tokens_per_s").get<double>())),
                      fmt::format("{:.1f}", 100 * r.at("mfu").get<double>()),
                      significant(r.at("memory_bytes").get<double>() / double(1 << 30), 3)});
  t.drop_empty_columns();
  t.notes = {
      "Axes without a column are 1. parts: of a stage, which take turns. times: micro-batches of a step. Tensor ranks "
      "divide the stream between layers too. GiB: by closed forms, of which nine tenths of the memory may be used.",
      "Those within 3 % of the fastest come first, the simplest of them at the top: predictions cannot tell them apart "
      "(sinter plan validate, docs/results/plan.md)."};
  view.tables = {t};
  return view;
}

Command::Run declare(Flags& flags, const Program&) {
  struct Given {
    ModelFlags model;
    PlanBestOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(
      flags, {"device", "batch", "rope_theta", "norm_eps", "mode", "passes", "memory_budget", "memory_limit", "pass",
              "warmup", "steps", "accumulate", "no_tune", "seed", "lr", "threads", "clip", "deterministic"});
  PlanBestOptions& p = g->plan;
  const char *where = "Machine", *ranks = "Devices";
  flags.add("--devices", p.devices, "N", "that train together (default 1)", ranks);
  flags.add("--global-batch", p.global_batch, "N", "sequences of a step, of all devices (default 8 for each)", ranks);
  flags.add("--top", p.top, "N", "how many are shown (default 10)", "Output");
  flags.add("--machine", p.machine, "NAME|FILE", "as of plan simulate (default h100)", where);
  flags.add("--memory", p.memory, "SIZE", "of a device, 80GB or 80GiB (default: the machine's)", where);
  flags.add("--network", p.network, "NAME|FILE", "as of plan simulate (default: the machine's)", where);
  flags.add_switch("--ungated", p.ungated, "the feed-forward has one matrix in, not two", "Model");
  add_output_flags(flags, g->output, Plot::no);
  return [g] {
    g->plan.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    return plan_best(g->plan, g->output);
  };
}

}  // namespace

std::vector<Command> plan_best_commands() {
  return {{"plan best", "how to divide a model among devices: every way that fits, the fastest first", examples,
           declare, plan_best_view}};
}

}  // namespace sinter::lab
