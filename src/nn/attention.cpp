#include "nn/attention.h"

#include <cmath>

#include "core/range.h"
#include "ops/attention.h"
#include "ops/ops.h"

namespace sinter {
namespace {

constexpr AttentionKind all_kinds[] = {AttentionKind::automatic, AttentionKind::naive, AttentionKind::tiled,
                                       AttentionKind::flash, AttentionKind::portable};

}  // namespace

const char* name_of(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::automatic: return "auto";
    case AttentionKind::naive: return "naive";
    case AttentionKind::tiled: return "tiled";
    case AttentionKind::flash: return "flash";
    case AttentionKind::portable: return "portable";
  }
  return "?";
}

AttentionKind attention_named(const std::string& name) {
  for (AttentionKind k : all_kinds)
    if (name == name_of(k)) return k;
  fail_with(ErrorKind::usage, "--attention {}: unknown; choose auto, naive, flash, tiled (CPU) or portable (CUDA)",
            name);
}

AttentionChoice choose_attention(AttentionKind wanted, const DeviceInfo& device, int64_t head_dim) {
  if (wanted == AttentionKind::naive) return {wanted, "asked for"};
  std::string missing = missing_attention(device, head_dim);
  if (wanted == AttentionKind::automatic) {
    if (!missing.empty()) return {AttentionKind::naive, "auto: no flash, because " + missing};
    return {AttentionKind::flash,
            fmt::format("auto: {} has a kernel for head dimension {}", name_of(device.type), head_dim)};
  }
  check(wanted != AttentionKind::tiled || device.type == DeviceType::cpu,
        "--attention tiled: the readable reference runs on the CPU only; use --device cpu, or --attention flash or "
        "portable");
  check(wanted != AttentionKind::portable || device.type == DeviceType::cuda,
        "--attention portable: a CUDA kernel; use --device cuda, or --attention flash or tiled on the CPU");
  check(missing.empty(), "--attention {}: {}; use --attention naive", name_of(wanted), missing);
  return {wanted, "asked for"};
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, const AttentionOptions& options,
              int64_t offset) {
  check(options.kind != AttentionKind::automatic, "attend: which attention has not been chosen; call choose_attention");
  if (options.kind == AttentionKind::naive) return naive_attention(q, k, v, causal, offset);
  Range range(name_of(options.kind));
  AttentionAttrs attrs;
  attrs.scale = 1 / std::sqrt(double(q.size(-1)));
  attrs.causal = causal;
  attrs.causal_offset = offset;
  attrs.kernel = options.kind == AttentionKind::tiled      ? AttentionKernel::tiled
                 : options.kind == AttentionKind::portable ? AttentionKernel::portable
                                                           : AttentionKernel::best;
  attrs.deterministic = options.deterministic;
  attrs.tile = options.tile;
  return attention(q, k, v, attrs);
}

// Query heads that share a key/value head are taken as rows of one matrix for both products: no copy of k or v is made,
// and their gradients are summed over the group by the product itself. Only the softmax must see single heads.
Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, int64_t offset) {
  int64_t B = q.size(0), H = q.size(1), N = q.size(2), D = q.size(3), shared = k.size(1), keys = k.size(2);
  check(shared > 0 && H % shared == 0, "attention: {} query heads cannot share {} key/value heads evenly", H, shared);
  int64_t rows = H / shared * N;
  SoftmaxAttrs attrs;
  attrs.scale = 1 / std::sqrt(double(D));
  attrs.causal = causal;
  attrs.causal_offset = offset;
  Tensor scores = [&] {
    Range range("scores");
    return reshape(matmul(reshape(q, {B, shared, rows, D}), k, false, true), {B, H, N, keys});
  }();
  Tensor p = [&] {
    Range range("softmax");
    return softmax(scores, attrs);
  }();
  Range range("value");
  return reshape(matmul(reshape(p, {B, shared, rows, keys}), v), {B, H, N, D});
}

}  // namespace sinter
