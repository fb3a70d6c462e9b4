#include "lab/attention_work.h"

#include <cmath>

#include "core/check.h"
#include "nn/layers.h"
#include "ops/ops.h"
#include "profile/range.h"

namespace sinter::lab {

std::string AttentionConfig::text() const {
  return fmt::format("{} attention, batch {}, heads {}, ctx {}, d {}, {}, {}", implementation, batch, heads, ctx,
                     head_dim, precision.name, name_of(pass));
}

Json to_json(const AttentionConfig& c) {
  return {{"device", name_of(c.device)},
          {"batch", c.batch},
          {"heads", c.heads},
          {"ctx", c.ctx},
          {"head_dim", c.head_dim},
          {"causal", c.causal},
          {"attention", c.implementation},
          {"dtype", c.precision.name},
          {"maths", maths_text(c.precision)},
          {"pass", name_of(c.pass)},
          {"seed", c.seed}};
}

std::string implementation_named(const std::string& name, DeviceType device) {
  bool has_flash = backend_of(device).kernels().attention != nullptr;
  if (name == "auto") return has_flash ? "flash" : "naive";
  check(name == "naive" || name == "flash", "--attention {}: unknown; choose auto, naive or flash", name);
  check(name == "naive" || has_flash, "--attention flash: there is no kernel for it on {} yet; use --attention naive",
        name_of(device));
  return name;
}

void check_config(const AttentionConfig& c) {
  auto in_range = [](const char* flag, int64_t v, int64_t most) {
    check(v >= 1 && v <= most, "--{} must be between 1 and {}, not {}", flag, most, v);
  };
  in_range("batch", c.batch, 1 << 20);
  in_range("heads", c.heads, 1 << 20);
  in_range("ctx", c.ctx, 1 << 20);
  in_range("head-dim", c.head_dim, 1 << 12);
  check(c.pass != Pass::step, "--pass step: attention has no parameters; choose forward or forward-backward");
  check_supported(c.precision, c.device);
}

AttentionWork::AttentionWork(const AttentionConfig& c, DeviceType where) : config_(c) {
  Range range("init", RangeKind::phase);
  Dims dims{c.batch, c.heads, c.ctx, c.head_dim};
  DType type = c.precision.compute.value_or(DType::f32);
  uint64_t stream = 0;
  for (Tensor* t : {&q_, &k_, &v_, &seed_}) {
    *t = empty(dims, type, where);
    fill_normal(*t, c.seed, ++stream, 1, 10);
  }
  if (c.pass == Pass::forward) return;
  for (Tensor* t : {&q_, &k_, &v_}) require_grad(*t);
}

void AttentionWork::run() {
  Scoped math(context().math, config_.precision.math);
  Tensor o;
  {
    Range range("forward", RangeKind::phase), attn("attn");
    o = config_.implementation == "naive"
            ? naive_attention(q_, k_, v_, config_.causal)
            : attention(q_, k_, v_, {1 / std::sqrt(double(config_.head_dim)), config_.causal, 0});
  }
  if (config_.pass == Pass::forward) return;
  Range range("backward", RangeKind::phase);
  backward(o, seed_);
  for (const Tensor* t : {&q_, &k_, &v_}) zero_grad(*t);
}

int64_t predict_bytes(const AttentionConfig& c) {
  MetaTarget target(c.device);
  CachingAllocator& allocator = allocator_of(DeviceType::meta);
  allocator.release_cached();
  int64_t before = allocator.stats().allocated;
  allocator.reset_peak();
  {
    AttentionWork work(c, DeviceType::meta);
    work.run();
    work.run();
  }
  return allocator.stats().peak_allocated - before;
}

}  // namespace sinter::lab
