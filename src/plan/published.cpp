#include "plan/published.h"

#include <cmath>
#include <map>

namespace sinter::plan {

Shape read_shape(JsonFields j) {
  constexpr int64_t most = 1 << 22;
  Shape s;
  s.d_model = j.whole("d_model", 1, most);
  s.d_ff = j.whole("d_ff", 1, most);
  s.layers = j.whole("layers", 1, 10000);
  s.heads = j.whole("heads", 1, most);
  s.kv_heads = j.whole("kv_heads", 1, s.heads, s.heads);
  s.vocab = j.whole("vocab", 1, 1 << 26);
  s.ctx = j.whole("ctx", 1, 1 << 26);
  s.gated = j.flag("gated", true);
  s.tied = j.flag("tied", false);
  s.naive_attention = j.flag("naive_attention", false);
  s.positions = j.whole("positions", 0, 1 << 26, 0);
  if (s.d_model % s.heads != 0) j.refuse("heads", "does not divide d_model");
  if (s.heads % s.kv_heads != 0) j.refuse("kv_heads", "does not divide heads");
  j.finish();
  return s;
}

Layout read_layout(JsonFields j) {
  constexpr int64_t most = 1 << 20;
  Layout l;
  l.data = j.whole("data", 1, most, 1);
  l.tensor = j.whole("tensor", 1, most, 1);
  l.pipeline = j.whole("pipeline", 1, most, 1);
  l.context = j.whole("context", 1, most, 1);
  l.interleave = j.whole("interleave", 1, most, 1);
  l.micro_batch = j.whole("micro_batch", 1, most, 1);
  l.micro_batches = j.whole("micro_batches", 1, most, 1);
  std::string shard = j.text("shard", "none");
  const std::map<std::string, Layout::Shard> levels = {{"none", Layout::none},
                                                       {"optimizer", Layout::optimizer},
                                                       {"gradients", Layout::gradients},
                                                       {"parameters", Layout::parameters}};
  if (!levels.contains(shard))
    j.refuse("shard", shard + " is unknown; choose none, optimizer, gradients or parameters");
  l.shard = levels.at(shard);
  l.shard_ranks = j.whole("shard_ranks", 0, most, 0);
  l.recompute = j.number("recompute", 0, 1, 0);
  l.recompute_attention = j.flag("recompute_attention", false);
  l.sequence_parallel = j.flag("sequence_parallel", false);
  l.wire_bytes = j.number("wire_bytes", 0.5, 8, 2);
  l.fused = j.number("fused", 0, 10, 1);
  j.finish();
  return l;
}

std::vector<PublishedRun> read_published(const std::string& file) {
  JsonFields all(file);
  std::vector<PublishedRun> runs;
  for (JsonFields j : all.objects("runs")) {
    PublishedRun r;
    r.id = j.text("id"), r.source = j.text("source");
    r.machine = j.text("machine"), r.network = j.text("network"), r.dtype = j.text("dtype");
    r.node_bandwidth = j.number("node_bandwidth", 1, 1e18, 0);
    r.shape = read_shape(j.object("shape"));
    r.layout = read_layout(j.object("layout"));
    r.assumed = j.text("assumed", ""), r.left_out = j.text("left_out", "");
    double devices = double(r.layout.devices());
    double tokens = double(r.layout.data * r.layout.micro_batch * r.layout.micro_batches) * double(r.shape.ctx);
    r.flops = tokens * r.shape.flops_of_token() / devices;
    double value = j.number("value", 1e-9, 1e18);
    std::string metric = j.text("metric");
    std::string counted = j.text("attention_counted", "full");
    if (counted != "full" && counted != "half") j.refuse("attention_counted", counted + " is neither full nor half");
    if (metric == "step_s") {
      r.seconds = value;
    } else if (metric == "tokens_per_s_per_device") {
      r.seconds = tokens / (value * devices);
    } else if (metric == "tflops_per_device") {
      double scores = 12.0 * double(r.shape.layers) * double(r.shape.ctx) * double(r.shape.d_model) * tokens / devices;
      r.seconds = (r.flops - (counted == "half" ? scores / 2 : 0)) / (value * 1e12);
    } else {
      j.refuse("metric", metric + " is unknown; choose step_s, tokens_per_s_per_device or tflops_per_device");
    }
    j.finish();
    runs.push_back(std::move(r));
  }
  all.finish();
  return runs;
}

namespace {

// By what predictions of other runs of its source are off, as a mean of logarithms; where there is none, those of other
// sources, each with equal weight.
double factor_without(const std::vector<Compared>& all, size_t without, double Compared::*predicted) {
  std::map<std::string, std::pair<double, int>> by_source;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == without || !all[i].run.left_out.empty()) continue;
    auto& [sum, count] = by_source[all[i].run.source];
    sum += std::log(all[i].run.seconds / (all[i].*predicted)), ++count;
  }
  if (auto own = by_source.find(all[without].run.source); own != by_source.end())
    return std::exp(own->second.first / own->second.second);
  double sum = 0;
  for (const auto& [source, s] : by_source) sum += s.first / s.second;
  return by_source.empty() ? 1 : std::exp(sum / double(by_source.size()));
}

}  // namespace

std::vector<Compared> compare_published(const std::vector<PublishedRun>& runs) {
  std::vector<Compared> all;
  for (const PublishedRun& r : runs) {
    Machine machine = machine_named(r.machine);
    Network network = network_named(r.network);
    if (r.node_bandwidth > 0) network.node_bandwidth = r.node_bandwidth;
    Compared& c = all.emplace_back(Compared{r});
    c.raw = simulate_layers(r.shape, r.layout, r.dtype, machine, network).seconds;
    c.naive = r.flops / machine.product(r.dtype).peak;
  }
  std::vector<Compared> plain = all;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].factor = factor_without(plain, i, &Compared::raw);
    all[i].predicted = all[i].raw * all[i].factor;
    all[i].naive = plain[i].naive * factor_without(plain, i, &Compared::naive);
  }
  return all;
}

}  // namespace sinter::plan
