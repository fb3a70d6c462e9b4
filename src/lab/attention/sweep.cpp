#include "lab/attention/sweep.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "compile/compiled.h"
#include "core/check.h"

namespace sinter::lab {
namespace {

template <class T> bool given(const std::vector<T>& v) { return !v.empty(); }
template <class T> bool given(const std::optional<T>& v) { return v.has_value(); }
template <class T> std::string text_of(const std::vector<T>& v) { return fmt::format("{}", fmt::join(v, ",")); }
template <class T> std::string text_of(const std::optional<T>& v) { return fmt::format("{}", *v); }

}  // namespace

void AttentionSweep::declare(Flags& flags, const AttentionSweep& defaults, const std::vector<std::string>& without) {
  for_each_field([&](const std::string& name, auto member, const char* type, std::string help, const char* group) {
    if (std::find(without.begin(), without.end(), name) != without.end()) return;
    if constexpr (requires { given(defaults.*member); })
      if (given(defaults.*member)) help += " (default " + text_of(defaults.*member) + ")";
    flags.add(flag_named(name), this->*member, type, help, group);
  });
  add_device_flag(flags, device, "Run");
}

void AttentionSweep::fill_in(const AttentionSweep& defaults) {
  for_each_field([&](const char*, auto member, auto&&...) {
    if constexpr (requires { given(defaults.*member); })
      if (!given(this->*member)) this->*member = defaults.*member;
  });
}

std::vector<AttentionConfig> AttentionSweep::configs(Determinism determinism) const {
  std::vector<AttentionConfig> all;
  AttentionConfig c;
  c.device = device_named(chosen_device(device));
  c.causal = !full;
  c.seed = seed;
  bool compiled = std::find(mode.begin(), mode.end(), "compiled") != mode.end();
  check(passes.empty() || compiled, "--passes: only compiled attention has any; add --mode compiled");

  auto each = [](const auto& values, auto&& f) {
    for (const auto& v : values) f(v);
  };
  auto each_into = [&](const std::vector<int64_t>& values, int64_t& field, auto&& f) {
    each(values, [&](int64_t v) { field = v, f(); });
  };
  const std::vector<std::string> all_passes = {"all"};
  auto add = [&] {
    check_config(c);
    bool compared = determinism == Determinism::compared && deterministic && c.attention.kind != AttentionKind::naive;
    each(mode, [&](const std::string& m) {
      c.mode = mode_named(m);
      bool chosen = c.mode == Mode::compiled && !passes.empty();
      each(chosen ? passes : all_passes, [&](const std::string& p) {
        compile::passes_named(c.passes = p);  // refuses unknown ones
        for (bool d : compared ? std::vector<bool>{false, true} : std::vector<bool>{deterministic}) {
          c.attention.deterministic = d;
          all.push_back(c);
        }
      });
    });
    check(all.size() <= 10000, "these lists make more than 10000 configurations");
  };
  auto choose = [&](const std::string& name) {
    AttentionChoice choice = choose_attention(attention_named(name), target_of(c.device), c.head_dim);
    c.attention.kind = choice.kind;
    c.attention_why = choice.why;
    c.attention.tile = 0;
    if (tile.empty()) return add();
    each(tile, [&](int64_t size) {
      check(size >= 1 && size <= 4096, "--tile must be between 1 and 4096, not {}", size);
      c.attention.tile = int32_t(size);
      add();
    });
  };
  auto variants = [&] {
    each(pass, [&](const std::string& p) {
      c.pass = pass_named(p);
      each(dtype, [&](const std::string& t) {
        c.precision = precision_named(t);
        each(attention, choose);
      });
    });
  };
  auto shapes = [&] { each_into(head_dim, c.head_dim, [&] { each_into(ctx, c.ctx, variants); }); };
  each_into(batch, c.batch, [&] {
    each_into(heads, c.heads, [&] {
      c.kv_heads = c.heads;
      if (kv_heads.empty()) shapes();
      else each_into(kv_heads, c.kv_heads, shapes);
    });
  });
  return all;
}

}  // namespace sinter::lab
