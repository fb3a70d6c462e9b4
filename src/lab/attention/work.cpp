#include "lab/attention/work.h"

#include "backend/cpu/support.h"
#include "core/check.h"
#include "core/range.h"
#include "lab/config_text.h"
#include "ops/ops.h"
#include "train/attention_passes.h"

namespace sinter::lab {

std::string AttentionConfig::text() const {
  return fmt::format("{} attention{}{}{}, batch {}, heads {}, ctx {}, d {}, {}, {}", name_of(attention.kind),
                     attention.tile ? fmt::format(" in tiles of {}", attention.tile) : "",
                     attention.deterministic ? " (deterministic)" : "", mode == Mode::compiled ? ", compiled" : "",
                     batch, heads_text(to_json(*this)), ctx, head_dim, precision.name, name_of(pass));
}

Json to_json(const AttentionConfig& c) {
  Json j = {{"device", name_of(c.device)},
            {"batch", c.batch},
            {"heads", c.heads},
            {"kv_heads", c.kv_heads},
            {"ctx", c.ctx},
            {"head_dim", c.head_dim},
            {"causal", c.causal},
            {"attention", name_of(c.attention.kind)},
            {"attention_why", c.attention_why},
            {"deterministic", c.attention.deterministic},
            {"dtype", c.precision.name},
            {"maths", maths_text(c.precision)},
            {"pass", name_of(c.pass)},
            {"mode", name_of(c.mode)},
            {"seed", c.seed}};
  if (c.mode == Mode::compiled) j["passes"] = c.passes;
  if (c.attention.tile) j["tile"] = c.attention.tile;
  return j;
}

std::string algorithm_text(const AttentionConfig& c) {
  if (c.attention.kind != AttentionKind::naive)
    return fmt::format("compiled {} is the same kernel, replayed", name_of(c.attention.kind));
  return "compiled naive is still naive: the probabilities that the mask leaves are computed and stored, in strips of "
         "rows "
         "where there are many; on a GPU the scores of long rows are not";
}

void check_config(const AttentionConfig& c) {
  auto in_range = [](const char* flag, int64_t v, int64_t most) {
    check(v >= 1 && v <= most, "--{} must be between 1 and {}, not {}", flag, most, v);
  };
  in_range("batch", c.batch, 1 << 20);
  in_range("heads", c.heads, 1 << 20);
  in_range("kv-heads", c.kv_heads, 1 << 20);
  in_range("ctx", c.ctx, 1 << 22);
  in_range("head-dim", c.head_dim, 1 << 12);
  check(c.heads % c.kv_heads == 0, "--kv-heads {} does not divide --heads {}; choose one that does", c.kv_heads,
        c.heads);
  double rows = double(c.batch) * double(c.heads) * double(c.ctx), largest = rows * double(std::max(c.ctx, c.head_dim));
  check(largest < 1e15, "--batch {} --heads {} --ctx {} makes {:.1e} scores; use smaller ones", c.batch, c.heads, c.ctx,
        largest);
  check(c.pass != Pass::step, "--pass step: attention has no parameters; choose forward or forward-backward");
  AttentionKind kind = c.attention.kind;
  if (c.attention.tile != 0) {
    check(kind == AttentionKind::tiled || kind == AttentionKind::portable,
          "--tile {}: {} attention has no tile to choose; use --attention tiled (CPU) or portable (CUDA)",
          c.attention.tile, name_of(kind));
    in_range("tile", c.attention.tile, 4096);
    if (kind == AttentionKind::tiled) {
      AttentionAttrs attrs;
      attrs.tile = c.attention.tile;
      cpu::attention_tile(attrs, c.head_dim, c.type() == DType::f64 ? 8 : 4);  // refuses what does not fit
    } else {
      check(c.attention.tile == 32 || c.attention.tile == 64 || c.attention.tile == 128,
            "--tile {}: portable attention has tiles of 32, 64 and 128", c.attention.tile);
    }
  }
  check_supported(c.precision, target_of(c.device));
}

AttentionWork::AttentionWork(const AttentionConfig& c, DeviceType where) : config_(c) {
  Range range("init", RangeKind::phase);
  Dims queries{c.batch, c.heads, c.ctx, c.head_dim}, keys{c.batch, c.kv_heads, c.ctx, c.head_dim};
  uint64_t stream = 0;
  auto make = [&](const Dims& dims) {
    Tensor t = empty(dims, c.type(), where);
    fill_normal(t, c.seed, ++stream, 1, 10);
    return t;
  };
  q_ = make(queries), k_ = make(keys), v_ = make(keys);
  if (c.pass == Pass::forward) return;
  grad_ = make(queries);
  for (Tensor* t : {&q_, &k_, &v_}) {
    Leaf& leaf = require_grad(*t);
    if (c.mode == Mode::compiled) leaf.grad = empty(t->dims(), t->dtype(), where);  // a trace cannot make it
  }
}

Tensor AttentionWork::forward() {
  Range range("forward", RangeKind::phase), attn("attn");
  return attend(q_, k_, v_, config_.causal, config_.attention);
}

void AttentionWork::backward_from(const Tensor& o) {
  Range range("backward", RangeKind::phase);
  backward(o, grad_);
}

void AttentionWork::run(const Trainer::Mark& mark) {
  auto done = [&](Phase phase) {
    if (mark) mark(phase);
  };
  Scoped math(context().math, config_.precision.math);
  if (config_.mode == Mode::compiled) return replay(done);
  Tensor o = forward();
  done(Phase::forward);
  if (config_.pass == Pass::forward) return;
  backward_from(o);
  done(Phase::backward);
  for (const Tensor* t : {&q_, &k_, &v_}) zero_grad(*t);
}

void AttentionWork::replay(const Trainer::Mark& mark) {
  bool both = config_.pass != Pass::forward;
  if (!compiled_) {
    compile::CompileOptions options = with_attention(compile::passes_named(config_.passes), config_.attention);
    auto pass = [this, both](const auto&) {
      Tensor o = forward();
      if (both) {
        host_action([this](const KernelCall&) { mark_(Phase::forward); });
        for (const Tensor* t : {&q_, &k_, &v_}) zero_grad(*t);
        backward_from(o);
      }
      return std::vector{o.detach()};
    };
    compiled_.emplace(pass, q_.device(), options);
  }
  mark_ = mark;
  (*compiled_)({});
  mark_ = {};
  mark(both ? Phase::backward : Phase::forward);
}

int64_t AttentionWork::planned_held_bytes() const {
  int64_t sum = 0;
  for (const Tensor* t : {&q_, &k_, &v_}) sum += CachingAllocator::rounded(t->bytes());
  const compile::Graph& graph = compiled_->compilation().executable->graph();
  auto is_mark = [](const compile::Node& n) { return n.is_host(); };
  auto mark = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_mark);
  return sum + (mark == graph.nodes.end() ? 0 : graph.bytes_kept_for(int(mark - graph.nodes.begin())));
}

int64_t AttentionWork::grad_bytes() const { return grad_.defined() ? CachingAllocator::rounded(grad_.bytes()) : 0; }

AttentionNeed predict(const AttentionConfig& c) {
  MetaTarget target(target_of(c.device));
  CachingAllocator& allocator = allocator_of(DeviceType::meta);
  allocator.release_cached();
  int64_t before = allocator.stats().allocated;
  allocator.reset_peak();
  AttentionNeed need;
  {
    AttentionWork work(c, DeviceType::meta);
    work.run([&](Phase phase) {  // the first pass: later ones find the gradients of q, k and v in place
      if (phase == Phase::forward) need.held_bytes = allocator.stats().allocated - before - work.grad_bytes();
    });
    if (c.mode == Mode::compiled) need.held_bytes = work.planned_held_bytes();
    work.run();
  }
  need.peak_bytes = allocator.stats().peak_allocated - before;
  allocator.release_cached();
  return need;
}

}  // namespace sinter::lab
