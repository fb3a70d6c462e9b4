#include "plan/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "core/check.h"

namespace sinter::plan {
namespace {

void add_given(Sheet& s, const CostQuestion& q) {
  const ModelConfig& m = q.model;
  s.begin("Given");
  s.given("width, d_model", "d", double(m.d_model));
  s.given("inner width of the feed-forward", "f", double(m.d_ff));
  s.given("layers", "L", double(m.layers));
  if (!q.linears_only) {
    s.given("attention heads", "h", double(m.heads));
    s.given("width of keys, and of values", "g", double(m.key_value_heads() * m.head_dim()));
    s.given("vocabulary", "V", double(m.vocab));
  }
  s.given("context", "n", double(m.ctx));
  s.given("sequences of each data rank", "b", double(q.batch));
  s.given("bytes of a number in a product", "e", double(q.product_bytes));
  s.given("data ranks", "X", double(q.mesh.data));
  s.given("tensor ranks", "Y", double(q.mesh.tensor));
  s.given("links for the data axis", "M_X", double(q.mesh.data_links));
  s.given("links for the tensor axis", "M_Y", double(q.mesh.tensor_links));
  s.given("rate of a device", "C", q.mesh.flops, "FLOP/s");
  s.given("bandwidth of a link", "W", q.mesh.bandwidth, "B/s");
  s.given("memory of a device", "M", q.mesh.memory, "B");
  s.given("cost of a call", "o", q.mesh.call_s, "s");
}

void add_parameters(Sheet& s, const CostQuestion& q) {
  s.begin("Parameters");
  if (q.linears_only) {
    s.add("feed-forward", "P_ffn", "L·2·d·f");
    s.add("norms", "P_norm", "0");
    s.add("all", "P", "P_ffn");
  } else {
    s.add("embedding", "P_emb", "V·d");
    s.add("attention projections", "P_attn", "L·(2·d² + 2·d·g)");
    s.add("feed-forward", "P_ffn", "L·3·d·f");
    s.add("norms", "P_norm", "(2·L + 1)·d");
    s.add(q.model.tied_embeddings ? "head, the embedding again" : "head", "P_head",
          q.model.tied_embeddings ? "0" : "V·d");
    s.add("all", "P", "P_emb + P_attn + P_ffn + P_norm + P_head");
  }
  s.add("matrices, which ranks divide", "P_m", "P - P_norm");
}

void add_flops(Sheet& s, const CostQuestion& q) {
  s.begin("FLOPs of a data rank's tokens");
  s.add("tokens", "t", "b·n", "tokens");
  if (q.linears_only) {
    s.add("feed-forward", "F_ffn", "2·t·P_ffn", "FLOP");
    s.add("layers", "F_layers", "F_ffn", "FLOP");
    s.add("forward pass", "F", "F_layers", "FLOP");
  } else {
    s.add("embedding, a look-up", "F_emb", "0", "FLOP");
    s.add("attention projections", "F_attn", "2·t·P_attn", "FLOP");
    s.add("attention scores, in full", "F_scores", "L·4·t·n·d", "FLOP");
    s.add("feed-forward", "F_ffn", "2·t·P_ffn", "FLOP");
    s.add("norms, no product", "F_norm", "0", "FLOP");
    s.add("head", "F_head", "2·t·V·d", "FLOP");
    s.add("layers", "F_layers", "F_attn + F_scores + F_ffn", "FLOP");
    s.add("forward pass", "F", "F_layers + F_head", "FLOP");
  }
  s.add("step, backward twice forward", "F_step", "3·F", "FLOP");
}

// Norms and SwiGLU are recomputed, so what they read is kept: the residual stream in fp32, gate and up.
void add_activations(Sheet& s, const CostQuestion& q) {
  s.begin("Activations that a device keeps for the backward pass");
  if (q.linears_only) {
    s.add("of a token, on one device", "A_token", "L·e·(d + f)", "B");
    s.add("what both linears read", "A_ffn", "L·t·e·(d + f/Y)", "B");
    s.add("of a layer", "a", "A_ffn/L", "B");
    s.add("where a layer begins", "c", "t·e·d", "B");
    s.add("all", "A", "A_ffn", "B");
    return;
  }
  s.add("attention projections: q, k, v", "A_attn", "L·t·e·(d + 2·g)/Y", "B");
  if (q.model.attention.kind == AttentionKind::naive)
    s.add("attention: probabilities, output", "A_scores", "L·t·(e·h·n + e·d)/Y", "B");
  else s.add("attention: output, logsumexp", "A_scores", "L·t·(e·d + 4·h)/Y", "B");
  s.add("feed-forward: gate and up", "A_ffn", "L·t·2·e·f/Y", "B");
  s.add("norms: the residual stream", "A_norm", "(2·L + 1)·t·(4·d + 4)", "B");
  s.add("head: logits, their gradient", "A_head", "t·2·e·V/Y", "B");
  s.add("of a layer", "a", "(A_attn + A_scores + A_ffn)/L + 2·t·(4·d + 4)", "B");
  s.add("where a layer begins", "c", "t·4·d", "B");
  s.add("all", "A", "A_attn + A_scores + A_ffn + A_norm + A_head", "B");
  if (q.mesh.tensor > 1)
    s.add("all, sequence divided too", "A_seq", "A_attn + A_scores + A_ffn + A_norm/Y + A_head", "B");
}

// The last segment's activations are still there when the backward pass begins: it is not computed again.
void add_checkpointing(Sheet& s, const CostQuestion& q) {
  s.begin("Activation checkpointing: k layers in a segment");
  s.add("best k, as a real number", "k_best", "√(L·c/a)");
  const char* bytes = "(ceil(L/k) - 1)·c + k·a + A - L·a";
  int64_t layers = q.model.layers, best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t k = 1; k <= layers; ++k) {
    s.set("k", double(k));
    if (double needed = s.value_of(bytes); needed < least) least = needed, best = k;
  }
  auto row = [&](const std::string& what, int64_t k) {
    s.set("k", double(k));
    s.add(what, "A_k", bytes, "B");
    s.add("  computed again", "F_again", "(1 - k/L)·F_layers", "FLOP");
  };
  row("one layer: k = 1", 1);
  if (layers > 1) row("no checkpoints: k = L", layers);
  row(fmt::format("the best: k = {}", best), best);
}

// What is whole on every data rank, and what each holds a share of.
void add_memory(Sheet& s, const CostQuestion& q) {
  s.begin(fmt::format("Memory of a device, shard {}", name_of(q.shard)));
  s.add("state, undivided", "S", q.copies ? "18·P" : "16·P", "B");
  s.add("devices that hold it", "N", "ceil(S/M)");
  s.add("a tensor rank's parameters", "P_t", "P_m/Y + P_norm");
  s.add("a data rank's share of them", "P_s", "P_m/(X·Y) + P_norm");
  bool moments = q.shard >= ShardLevel::optimizer, gradients = q.shard >= ShardLevel::gradients,
       parameters = q.shard >= ShardLevel::parameters;
  if (gradients) {
    if (q.linears_only) s.add("parameters of a unit", "U", "2·d·f/Y");
    else s.add("parameters of the largest unit", "U", "max((P_attn + P_ffn)/L, P_emb)/Y");
  }
  int whole = 0, shared = 0;  // bytes of a parameter's state
  auto state = [&](const char* what, const char* symbol, int bytes, bool share, const char* more = "") {
    (share ? shared : whole) += bytes;
    s.add(what, symbol, fmt::format("{}·{}{}", bytes, share ? "P_s" : "P_t", more), "B");
  };
  state("masters", "D_master", 4, parameters || (moments && q.copies));
  if (q.copies && !parameters) state("16-bit copies", "D_copy", 2, false);
  else s.add("16-bit copies", "D_copy", "0", "B");
  state("gradients", "D_grad", 4, gradients, gradients ? " + 2·4·U" : "");
  state("moments", "D_moment", 8, moments);
  s.add("gathered units", "D_lent", parameters ? "3·e·U" : "0", "B");
  std::string rest = shared ? fmt::format("{}/X", shared) : "";
  s.add("state of a parameter", "z",
        !whole         ? rest
        : rest.empty() ? std::to_string(whole)
                       : fmt::format("{} + {}", whole, rest),
        "B");
  s.add("all, with activations", "D", "D_master + D_copy + D_grad + D_moment + D_lent + A", "B");
  s.add("all, with best checkpoints", "D_k", "D - A + A_k", "B");
}

// A collective sends this many bytes over its axis.
struct Collective {
  std::string what, symbol, bytes;
};

// Adds them, and what the axis takes for all of them.
void add_axis(Sheet& s, const std::string& axis, const std::string& links, const std::vector<Collective>& collectives) {
  std::string bytes, seconds;
  for (const Collective& c : collectives) {
    s.add(c.what, "Q_" + c.symbol, c.bytes, "B");
    s.add("  takes", "T_" + c.symbol, fmt::format("Q_{}/(W·{})", c.symbol, links), "s");
    bytes += (bytes.empty() ? "Q_" : " + Q_") + c.symbol;
    seconds += (seconds.empty() ? "T_" : " + T_") + c.symbol;
  }
  s.add("in all", "Q_" + axis, bytes, "B");
  s.add("  takes", "T_" + axis, seconds, "s");
}

void add_data_axis(Sheet& s, const CostQuestion& q) {
  s.set("T_X", 0), s.set("Q_X", 0);
  if (q.mesh.data == 1) return;
  s.begin("Data axis: bytes that a device sends in a step");
  std::string gathered = "(X - 1)/X·e·P_t";
  Collective scatter{"reduce-scatter of gradients", "rs", "(X - 1)/X·4·P_t"};
  if (q.shard == ShardLevel::none) add_axis(s, "X", "M_X", {{"all-reduce of gradients", "ar", "2·(X - 1)/X·4·P_t"}});
  else if (q.shard == ShardLevel::parameters)
    add_axis(s, "X", "M_X",
             {{"all-gather, forward", "ag", gathered}, {"all-gather, backward", "ag2", gathered}, scatter});
  else add_axis(s, "X", "M_X", {{"all-gather of parameters", "ag", gathered}, scatter});
}

void add_tensor_axis(Sheet& s, const CostQuestion& q) {
  s.set("T_Y", 0);
  if (q.mesh.tensor == 1) return;
  s.begin("Tensor axis: bytes that a device sends in a step");
  s.add("all-reduces in a forward pass", "R", q.linears_only ? "L" : "2·L + 1");
  std::string bytes = "R·2·(Y - 1)/Y·e·t·d";
  add_axis(s, "Y", "M_Y", {{"all-reduces, forward", "fwd", bytes}, {"all-reduces, backward", "bwd", bytes}});
}

void add_time(Sheet& s, const CostQuestion& q) {
  s.begin("Time of a step, at the device's full rate");
  s.add("compute", "T_math", "F_step/(Y·C)", "s");
  if (q.mesh.data == 1 && q.mesh.tensor == 1) return;
  s.add("if nothing overlaps", "T_sum", "T_math + T_X + T_Y", "s");
  s.add("if everything overlaps", "T_max", "max(T_math, max(T_X, T_Y))", "s");
}

constexpr double no_batch = std::numeric_limits<double>::infinity();

// Tokens of all ranks together. Where the tensor axis alone takes longer than compute, more tokens lengthen both.
void add_batch(Sheet& s, const std::string& what, const std::string& symbol, const std::string& formula,
               bool tensor_bound) {
  double tokens = s.add(what, symbol, formula, "tokens");
  if (tensor_bound || tokens < 0) s.set(symbol, s.lines.back().value = no_batch);
}

// The FLOPs for which there is time while a link carries a byte, and what follows from them.
void add_intensities(Sheet& s, const std::string& of) {
  s.add(of + "FLOPs in a byte's time, data axis", "i", "C/(W·M_X)", "FLOP/B");
  if (s.at("Y") == 1) return;
  s.add(of + "the same, tensor axis", "j", "C/(W·M_Y)", "FLOP/B");
  s.add(of + "tensor ranks at most", "Y_max", "φ / (τ·j)", "ranks");
}

void add_forward_batch(Sheet& s, const std::string& of) {
  bool tensor = s.at("Y") > 1, bound = tensor && s.at("Y") > s.at("Y_max");
  add_batch(s, of + "overlapped", "B_over", "X·i·e·r", bound);
  if (tensor) add_batch(s, of + "added up", "B_sum", "X·i·e·r/(1 - Y/Y_max)", bound);
}

void add_compute_bound(Sheet& s, const CostQuestion& q) {
  if (q.mesh.data == 1 && q.mesh.tensor == 1) return;
  s.begin("Compute-bound from a batch of, in tokens of all ranks");
  bool tensor = q.mesh.tensor > 1;
  s.add("forward FLOPs of a token", "φ", "F/t", "FLOP");
  if (tensor) s.add("its bytes on the tensor axis", "τ", "R·2·e·d", "B");
  add_intensities(s, "");
  s.add("parameters for each of its FLOPs", "r", "P_m/φ");
  if (q.mesh.data == 1) return;
  if (q.shard == ShardLevel::parameters) add_forward_batch(s, "forward pass, ");
  const char* bytes = q.shard == ShardLevel::none ? "2·4" : q.shard == ShardLevel::parameters ? "4 + 2·e" : "4 + e";
  s.add("a parameter's bytes in a step", "q", bytes, "B");
  bool bound = tensor && 2 * s.at("Y") > 3 * s.at("Y_max");
  add_batch(s, "step, overlapped", "B_step", "X·i·q·r/3", bound);
  if (tensor) add_batch(s, "step, added up", "B_step_sum", "X·i·q·r/3/(1 - 2·Y/(3·Y_max))", bound);
}

void add_buckets(Sheet& s, const CostQuestion& q) {
  if (q.mesh.data == 1) return;
  s.begin("Buckets of an all-reduce during the backward pass");
  s.add("gradients", "s", "4·P_t", "B");
  s.add("rate of reducing them", "w", "W·M_X·X/(2·(X - 1))", "B/s");
  if (q.mesh.call_s == 0) return;
  s.add("best number of buckets", "n_best", "√(s/(w·o))", "buckets");
  s.add("best bucket", "s_best", "√(s·w·o)", "B");
  s.add("what cannot be hidden then", "T_bucket", "s/(n_best·w) + n_best·o", "s");
}

template <class T> void check_between(const char* flag, T value, T least, T most) {
  check(value >= least && value <= most, "{} must be between {} and {}, not {}", flag, least, most, value);
}

void check_divides(const char* flag, int64_t value, int64_t tensor) {
  check(value % tensor == 0, "--tensor {}: does not divide {} {}; choose a number of tensor ranks that does", tensor,
        flag, value);
}

}  // namespace

void check_question(const CostQuestion& q) {
  const Mesh& m = q.mesh;
  check_between<int64_t>("--data", m.data, 1, 1 << 20);
  check_between<int64_t>("--tensor", m.tensor, 1, 1 << 20);
  check_between<int64_t>("--links", std::min(m.data_links, m.tensor_links), 1, 1 << 20);
  check_between<int64_t>("--links", std::max(m.data_links, m.tensor_links), 1, 1 << 20);
  check_between("--flops", m.flops, 1.0, 1e30);
  check_between("--bandwidth", m.bandwidth, 1.0, 1e30);
  check_between("--memory", m.memory / 1e9, 1e-9, 1e21);
  check_between("--call-us", m.call_s * 1e6, 0.0, 1e12);
  check(q.shard != ShardLevel::broadcast,
        "--shard broadcast: there is no equation for it; choose none, optimizer, gradients or parameters");
  check(q.shard == ShardLevel::none || m.data > 1, "--shard {}: say among how many, with --data", name_of(q.shard));
  check_divides("--d-ff", q.model.d_ff, m.tensor);
  if (q.linears_only) return;
  check_divides("--heads", q.model.heads, m.tensor);
  check_divides("--kv-heads", q.model.key_value_heads(), m.tensor);
  check_divides("--vocab", q.model.vocab, m.tensor);
}

Sheet cost_sheet(const CostQuestion& q) {
  check_question(q);
  Sheet s;
  add_given(s, q);
  add_parameters(s, q);
  add_flops(s, q);
  add_activations(s, q);
  add_checkpointing(s, q);
  add_memory(s, q);
  add_data_axis(s, q);
  add_tensor_axis(s, q);
  add_time(s, q);
  add_compute_bound(s, q);
  add_buckets(s, q);
  return s;
}

CostQuestion xxl_question() {
  CostQuestion q;
  q.model.name = "xxl";
  q.model.d_model = 16384, q.model.d_ff = 53248, q.model.layers = 126, q.model.ctx = 4096;
  q.linears_only = true;
  q.product_bytes = 2;
  q.shard = ShardLevel::parameters;
  // TPU v5p: 9·10¹⁰ B/s each way, and a ring uses both. Two axes of its torus carry data ranks, one tensor ranks.
  q.mesh = {16, 4, 2, 1, 4.6e14, 2 * 9e10, 95e9, 1e-6};
  return q;
}

void add_xxl_answers(Sheet& sheet, const CostQuestion& q) {
  sheet.begin("On one device");
  sheet.add("fp32 weights, gradients, AdamW", "S", "16·P", "B");
  sheet.add("  in units of 10¹² bytes", "S_TB", "S/1000000000000", "TB");
  sheet.add("  in units of 2³⁰ bytes", "S_GiB", "S/1073741824", "GiB");
  sheet.add("H100 of 80 GB that hold it", "N_H100", "ceil(S/80000000000)");
  if (q.mesh.data == 1 || q.mesh.tensor == 1 || q.shard != ShardLevel::parameters) return;
  sheet.begin("What moves the compute-bound batch of a forward pass");
  using Values = std::vector<std::pair<std::string, double>>;
  auto variant = [&](const std::string& what, const Values& values) {
    Sheet changed = sheet;
    for (const auto& [symbol, value] : values) changed.set(symbol, value);
    changed.lines.clear();
    add_intensities(changed, what + ": ");
    add_forward_batch(changed, what + ": ");
    for (const Sheet::Line& line : changed.lines)  // what the change leaves as it was need not be said again
      if (line.unit == "tokens" || (line.symbol == "Y_max" && line.value != sheet.at("Y_max")))
        sheet.lines.push_back(line);
  };
  double devices = sheet.at("X") * sheet.at("Y");
  for (double y = 1; y <= devices && y <= 32; y *= 2)
    if (y != sheet.at("Y") && std::fmod(devices, y) == 0)
      variant(fmt::format("mesh of {:g} × {:g}", devices / y, y), {{"X", devices / y}, {"Y", y}});
  sheet.add("best split if added up: Y", "Y_best", "Y_max/2", "ranks");
  sheet.add("the batch there", "B_best", "4·X·Y·i·e·r/Y_max", "tokens");
  variant("links 1 and 2", {{"M_X", 1}, {"M_Y", 2}});
  variant("one way of each link", {{"W", sheet.at("W") / 2}});
  variant("weights in 8 bits", {{"e", 1}});
  sheet.add("weights whole (below ZeRO-3)", "B_whole", "0", "tokens");
  auto step = [&](const std::string& what, double bytes) {
    Sheet changed = sheet;
    changed.set("q", bytes);
    changed.add(what, "B_step", "X·i·q·r/3", "tokens");
    sheet.lines.push_back(changed.lines.back());
  };
  step("step: ZeRO-3, fp32 gradients", 8);
  step("step: ZeRO-3, bf16 gradients", 6);
  step("step: DDP, fp32 gradients", 8);
  step("step: DDP, bf16 gradients", 4);
  sheet.add("a whole sequence a data rank", "B_whole_seq", "max(B_over, X·n)", "tokens");
  sheet.add("sequences divided by X", "B_seq", "B_over", "tokens");
  sheet.add("a token's bytes: all-reduce", "τ_ar", "R·2·e·d", "B");
  sheet.add("  gather, scatter (divided by Y)", "τ_seq", "R·(e·d + e·d)", "B");
  sheet.add("a device keeps of a token", "A_whole", "L·e·(d + f/Y)", "B");
  sheet.add("  divided by Y", "A_seq", "L·e·(d + f)/Y", "B");
}

}  // namespace sinter::plan
