#include "plan/layers.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace sinter::plan {
namespace {

constexpr double stream_bytes = 18, inner_bytes = 6;  // Note [Layers as work]
constexpr double backward_moves = 1.6;                // of what the forward pass moves
constexpr double naive_score_bytes = 10;              // of each score, in a forward pass
constexpr double head_bytes = 18;                     // of each logit: loss, and its gradient
constexpr double update_bytes = 28;                   // of each parameter that a device updates
constexpr double bucket_bytes = 25 << 20;

class Builder {
 public:
  Builder(const Shape& s, const Layout& l, const std::string& dtype, const Network& network) : s_(s), l_(l) {
    work_.dtype = dtype;
    tokens_ = double(l.micro_batch) * double(s.ctx) / double(l.context);
    y_ = double(l.tensor);
    kv_ = double(s.d_model) / double(s.heads) * double(s.kv_heads);
    per_node_ = network.devices_per_node;
  }

  // One micro-batch through `layers` layers of a device; the ends where it has them.
  // `reduces`: gradients leave the device with it.
  Work micro_batch(int64_t layers, bool ends, bool reduces) {
    work_.tasks.clear();
    for (int64_t i = 0; i < layers; ++i) {
      layer_forward(gather("gather"));
    }
    if (ends) head();
    for (int64_t i = layers; i-- > 0;) {
      int again = i + 1 == layers && l_.shard == Layout::parameters ? -1 : gather("gather again");
      recompute(again);
      layer_backward(again);
      if (reduces || l_.shard >= Layout::gradients) reduce(layer_parameters(), i == 0 && !ends);
    }
    if (ends && (reduces || l_.shard >= Layout::gradients)) reduce(end_parameters(), true);
    return work_;
  }

  double layer_parameters() const {
    double d = double(s_.d_model), f = double(s_.d_ff);
    return (2 * d * d + 2 * d * kv_ + (s_.gated ? 3 : 2) * d * f) / y_;
  }
  double end_parameters() const {
    return double(s_.d_model) * (double(s_.vocab) * (s_.tied ? 1 : 2) + double(s_.positions)) / y_;
  }
  double tokens() const { return tokens_; }

  // Master, gradient, two moments and a 16-bit copy, as they are divided; and what the forward pass keeps, of as many
  // micro-batches as a stage has under way.
  double memory_bytes(int64_t layers) const {
    double p = layer_parameters() * double(layers) + end_parameters() / double(l_.pipeline);
    double n = double(shard_ranks());
    constexpr double whole[] = {18, 6, 2, 0}, divided[] = {0, 12, 16, 16};
    double state = p * (whole[l_.shard] + divided[l_.shard] / n);
    if (l_.shard == Layout::parameters) state += 3 * 2 * layer_parameters() + 2 * 4 * layer_parameters();
    double d = double(s_.d_model), stream = tokens_ * 4 * d / (l_.sequence_parallel ? y_ : 1);
    double inside = 2 * tokens_ * (2 * d + 2 * kv_ + (s_.gated ? 2 : 1) * double(s_.d_ff)) / y_;
    if (s_.naive_attention) inside += 2 * tokens_ * double(s_.heads) * double(s_.ctx) / y_;
    double layer = 2 * stream + inside;
    double kept = l_.recompute > 0 ? l_.recompute * stream + (1 - l_.recompute) * layer : layer;
    double under_way = double(std::min(l_.pipeline, l_.micro_batches));
    double ends = 2 * 2 * tokens_ * double(s_.vocab) / y_;
    return state + under_way * double(layers) * kept + layer + ends;
  }

  // Ranks of the data axis that divide parameters, or make an all-reduce together.
  Ranks data_ranks(int64_t count) const {
    int64_t inside = std::max<int64_t>(1, per_node_ / std::min(per_node_, l_.tensor));
    return {count, std::min(count, inside)};
  }
  int64_t shard_ranks() const { return l_.shard_ranks > 0 ? std::min(l_.shard_ranks, l_.data) : l_.data; }

 private:
  int add(Task t) {
    work_.tasks.push_back(std::move(t));
    return int(work_.tasks.size()) - 1;
  }
  int product(const char* name, double m, double n, double k) {
    Task t;
    t.kind = Task::product, t.name = name, t.m = m, t.n = n, t.k = k;
    t.flops = 2 * m * n * k;
    t.bytes = 2 * (m * n + n * k + m * k);
    return add(t);
  }
  // y = x·Wᵀ, and backward dx and dW.
  void linear(const char* name, double in, double out, bool backward) {
    if (!backward) {
      product(name, tokens_, out, in);
      return;
    }
    product(name, tokens_, in, out);
    product(name, in, out, tokens_);
  }
  void linears(bool backward) {
    double d = double(s_.d_model), f = double(s_.d_ff) / y_;
    linear("qkv", d, (d + 2 * kv_) / y_, backward);
    linear("o", d / y_, d, backward);
    for (int i = 0; i < (s_.gated ? 2 : 1); ++i) linear("up", d, f, backward);
    linear("down", f, d, backward);
  }
  void attention(bool backward) {
    double n = double(s_.ctx), d = double(s_.d_model) / y_, dh = double(s_.d_model) / double(s_.heads);
    Task t;
    t.name = backward ? "attention backward" : "attention";
    t.backward = backward;
    if (s_.naive_attention) {
      for (int i = 0; i < (backward ? 4 : 2); ++i) {
        Task p;
        p.kind = Task::product, p.name = t.name;
        p.m = n, p.n = i % 2 ? dh : n, p.k = i % 2 ? n : dh;
        p.flops = 2 * tokens_ * n * d;
        add(p);
      }
      t.kind = Task::moves;
      t.bytes = (backward ? 2 : 1) * naive_score_bytes * tokens_ * n * double(s_.heads) / y_;
      add(t);
      return;
    }
    t.kind = Task::attention;
    t.flops = (backward ? 2.5 : 1) * 2 * tokens_ * n * d / double(l_.context);  // what a causal mask leaves
    if (l_.context > 1) t.flops *= double(l_.context);  // of all keys, for a part of the queries
    if (dh < 128) t.flops /= 0.75;                      // the exponentials count for more
    t.ctx = n;
    add(t);
  }
  void moves(const char* name, double bytes, int wait = -1) {
    Task t;
    t.name = name, t.bytes = bytes;
    if (wait >= 0) t.waits = {wait};
    add(t);
  }
  double moved() const {
    double stream = tokens_ * double(s_.d_model) / (l_.sequence_parallel ? y_ : 1);
    double inner = tokens_ * ((s_.gated ? 2 : 1) * double(s_.d_ff) + double(s_.d_model) + 2 * kv_) / y_;
    return l_.fused * (stream * stream_bytes + inner * inner_bytes);
  }
  // Tensor ranks add up the stream, and nothing goes on meanwhile.
  void add_up(int times) {
    if (l_.tensor == 1) return;
    for (int i = 0; i < times; ++i) {
      Task t;
      t.kind = Task::collective, t.name = "all-reduce of the stream";
      t.lane = compile::communication_lane;
      t.operation = CollectiveKind::all_reduce;
      t.bytes = 2 * tokens_ * double(s_.d_model);
      t.ranks = {l_.tensor, std::min(l_.tensor, per_node_)};
      t.waits = {int(work_.tasks.size()) - 1};
      int done = add(t);
      moves("stream", 0, done);
    }
  }
  void layer_forward(int gathered) {
    moves("norms and more", moved(), gathered);
    linears(false);
    attention(false);
    add_up(2);
  }
  void layer_backward(int gathered) {
    moves("norms and more, backward", backward_moves * moved(), gathered);
    linears(true);
    attention(true);
    add_up(2);
  }
  void recompute(int gathered) {
    if (l_.recompute_attention) return attention(false);
    if (l_.recompute <= 0) return;
    size_t first = work_.tasks.size();
    layer_forward(gathered);
    for (size_t i = first; i < work_.tasks.size(); ++i) {
      Task& t = work_.tasks[i];
      t.flops *= l_.recompute, t.bytes *= l_.recompute;
    }
  }
  void head() {
    double d = double(s_.d_model), v = double(s_.vocab) / y_;
    linear("head", d, v, false);
    moves("loss", l_.fused * tokens_ * v * head_bytes);
    linear("head", d, v, true);
  }

  // Of a unit's parameters, two units ahead: it waits for what computed the unit before the last.
  int gather(const char* name) {
    if (l_.shard != Layout::parameters || shard_ranks() == 1) return -1;
    Task t;
    t.kind = Task::collective, t.name = name, t.lane = compile::communication_lane;
    t.operation = CollectiveKind::all_gather;
    t.bytes = layer_parameters() * l_.wire_bytes;
    t.ranks = data_ranks(shard_ranks());
    int seen = 0;
    for (int i = int(work_.tasks.size()) - 1; i >= 0; --i) {
      if (work_.tasks[size_t(i)].name != "norms and more" && work_.tasks[size_t(i)].name != "norms and more, backward")
        continue;
      if (++seen < 2) continue;
      t.waits = {i};
      break;
    }
    return add(t);
  }
  void reduce(double parameters, bool last) {
    if (l_.data == 1) return;
    waiting_ += parameters * l_.wire_bytes;
    bool sharded = l_.shard != Layout::none;
    if (!sharded && !last && (l_.strategy == Layout::flat || waiting_ < bucket_bytes)) return;
    auto collective = [&](CollectiveKind kind, double bytes, const Ranks& ranks) {
      Task t;
      t.kind = Task::collective, t.lane = compile::communication_lane;
      t.name = name_of(kind);
      t.operation = kind, t.bytes = bytes, t.ranks = ranks;
      t.waits = {last_main()};
      add(t);
    };
    int64_t n = shard_ranks();
    if (!sharded) collective(CollectiveKind::all_reduce, waiting_, data_ranks(l_.data));
    else if (n > 1) collective(CollectiveKind::reduce_scatter, waiting_, data_ranks(n));
    if (sharded && n < l_.data)  // shares are added up over the groups that hold the same
      collective(CollectiveKind::all_reduce, waiting_ / double(n), {l_.data / n, 1});
    waiting_ = 0;
  }
  int last_main() const {
    for (int i = int(work_.tasks.size()) - 1; i >= 0; --i)
      if (work_.tasks[size_t(i)].lane == compile::main_lane) return i;
    return 0;
  }

  const Shape& s_;
  const Layout& l_;
  Work work_;
  double tokens_ = 0, y_ = 1, kv_ = 0, waiting_ = 0;
  int64_t per_node_ = 1;
};

// One forward and one backward pass in turn, once the pipeline is full: stages × micro-batches, each with its time.
// With parts of a stage the bubble at both ends is as much smaller.
double pipelined(double micro_batch, double hop, int64_t stages, int64_t parts, int64_t batches) {
  double steady = double(batches) * micro_batch;
  double ends = double(stages - 1) * (micro_batch / double(parts) + 2 * hop);
  return steady + ends + double(batches) * 2 * hop * double(parts - 1);
}

}  // namespace

double Shape::parameters() const {
  double d = double(d_model), f = double(d_ff), kv = d / double(heads) * double(kv_heads);
  return double(layers) * (2 * d * d + 2 * d * kv + (gated ? 3 : 2) * d * f + 2 * d) + d +
         d * (double(vocab) * (tied ? 1 : 2) + double(positions));
}

double Shape::flops_of_token() const {
  double d = double(d_model), f = double(d_ff), kv = d / double(heads) * double(kv_heads);
  double products = double(layers) * (2 * d * d + 2 * d * kv + (gated ? 3 : 2) * d * f) + d * double(vocab);
  return 3 * (2 * products + double(layers) * 4 * double(ctx) * d);
}

void check_layout(const Shape& s, const Layout& l) {
  auto divides = [](const char* what, int64_t whole, const char* by, int64_t part) {
    check(whole % part == 0, "{} {} cannot be divided by {} {}", what, whole, by, part);
  };
  check(l.data >= 1 && l.tensor >= 1 && l.pipeline >= 1 && l.context >= 1,
        "--data, --tensor, --pipeline and --context must be at least 1");
  check(l.micro_batch >= 1 && l.micro_batches >= 1, "a step needs a micro-batch of at least one sequence");
  divides("heads", s.heads, "--tensor", l.tensor);
  divides("the inner width", s.d_ff, "--tensor", l.tensor);
  divides("ctx", s.ctx, "--context", l.context);
  check(s.layers >= l.pipeline * l.interleave, "{} layers are fewer than {} stages of {} parts", s.layers, l.pipeline,
        l.interleave);
  check(l.interleave == 1 || l.pipeline > 1, "--interleave {}: only a pipeline has parts; add --pipeline",
        l.interleave);
  check(l.shard_ranks == 0 || l.data % l.shard_ranks == 0, "--shard-ranks {}: does not divide --data {}", l.shard_ranks,
        l.data);
}

double memory_of_layers(const Shape& s, const Layout& l, const std::string& dtype, const Network& network) {
  check_layout(s, l);
  return Builder(s, l, dtype, network).memory_bytes((s.layers + l.pipeline - 1) / l.pipeline);  // of the largest stage
}

SimulatedStep simulate_layers(const Shape& s, const Layout& l, const std::string& dtype, const Machine& m,
                              const Network& network, const Conditions& c) {
  check_layout(s, l);
  SimulatedStep r;
  int64_t layers = (s.layers + l.pipeline - 1) / l.pipeline;  // of the largest stage
  bool ends = l.pipeline == 1;
  // Micro-batches are alike but for the last, with which gradients leave: two kinds are simulated, not all.
  Builder first(s, l, dtype, network), last(s, l, dtype, network);
  Timeline usual, reducing;
  if (l.micro_batches > 1) usual = simulate(first.micro_batch(layers, ends, false), m, network, c);
  r.work = last.micro_batch(layers, ends, true);
  r.timeline = reducing = simulate(r.work, m, network, c);
  double n = double(l.micro_batches);
  r.communication = (n - 1) * usual.communication + reducing.communication;
  r.exposed = (n - 1) * usual.exposed + reducing.exposed;
  if (l.pipeline == 1) {
    r.seconds = (n - 1) * usual.seconds + reducing.seconds;
  } else {
    // The head is on the last stage alone. Where stages have parts it is one more of them.
    Shape head_only = s;
    head_only.layers = 0;
    Builder of_head(head_only, l, dtype, network);
    Layout alone = l;
    alone.data = 1;
    Builder without(head_only, alone, dtype, network);
    double head = simulate(without.micro_batch(0, true, false), m, network, c).seconds;
    double one = (l.micro_batches > 1 ? usual.seconds : reducing.seconds) + head / double(l.pipeline);
    double hop_bytes = 2 * first.tokens() * double(s.d_model) / double(l.tensor);
    bool between_nodes = l.tensor * l.context >= network.devices_per_node || l.devices() > network.devices_per_node;
    double hop = network.hop_seconds(hop_bytes, between_nodes) * c.slow_link;
    r.seconds = pipelined(one, hop, l.pipeline, l.interleave, l.micro_batches) + reducing.seconds -
                (l.micro_batches > 1 ? usual.seconds : reducing.seconds);
    r.bubble = r.seconds - n * one;
  }
  r.memory_bytes = first.memory_bytes(layers);
  double parameters = first.layer_parameters() * double(layers) + first.end_parameters() / double(l.pipeline);
  bool divided = l.shard != Layout::none;
  double updated = parameters / (divided ? double(first.shard_ranks()) : 1);
  r.seconds += updated * update_bytes / m.bandwidth * c.slow_device;
  if (l.shard == Layout::optimizer || l.shard == Layout::gradients) {
    double gathered =
        network.seconds(CollectiveKind::all_gather, parameters * l.wire_bytes, first.data_ranks(first.shard_ranks())) *
        c.slow_link;
    r.seconds += gathered, r.communication += gathered, r.exposed += gathered;
  }
  return r;
}

}  // namespace sinter::plan
