#include "backend/cpu/support.h"

#include <cstdlib>
#include <new>
#include <string>

#include "core/error.h"
#include "core/philox.h"

namespace sinter::cpu {
namespace {

struct Scratch {
  void* data[scratch_slots] = {};
  int64_t bytes[scratch_slots] = {};

  ~Scratch() {
    for (void* p : data) std::free(p);
  }
};

std::string describe(const TensorRef& t) {
  std::string s = name_of(t.dtype);
  s += "(";
  for (int d = 0; d < t.rank; ++d) s += (d ? ", " : "") + std::to_string(t.dims[d]);
  return s + ")";
}

}  // namespace

void* scratch(int slot, int64_t bytes) {
  thread_local Scratch s;
  if (bytes > s.bytes[slot]) {
    int64_t rounded = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    std::free(s.data[slot]);
    s.bytes[slot] = 0;
    s.data[slot] = std::aligned_alloc(64, size_t(rounded));
    if (!s.data[slot]) throw std::bad_alloc();
    s.bytes[slot] = rounded;
  }
  return s.data[slot];
}

void layout_of(PointwiseLayout& layout, const TensorRef& out, const TensorRef* in, int n_in) {
  layout = pointwise_layout(out, in, n_in);
}

void normal_ends(double low, double high, float& p_low, float& p_high) {
  p_low = normal_cdf(low);
  p_high = normal_cdf(high);
}

int64_t attention_tile(const AttentionAttrs& attrs, int64_t head_dim, int64_t element_bytes) {
  constexpr int64_t limit = 4 << 20, most = 1 << 16;  // bytes a core can hope to keep in its cache; rows
  // Backward holds the most: q, k, v, o, do, dk, dv, and the scores that forward keeps.
  auto bytes = [&](int64_t tile) { return (7 * tile * head_dim + tile * tile + 2 * tile) * element_bytes; };
  int64_t tile = attrs.tile;
  if (tile == 0)
    for (tile = 64; tile > 1 && bytes(tile) > limit;) tile /= 2;
  if (tile < 1 || tile > most)
    fail(ErrorKind::usage, "attention: a tile of " + std::to_string(tile) + " rows is impossible; choose 1 to " +
                               std::to_string(most) + ", or 0 for the kernel's choice");
  if (bytes(tile) > limit)
    fail(ErrorKind::usage, "attention: a tile of " + std::to_string(tile) + " rows with head dimension " +
                               std::to_string(head_dim) + " needs " + std::to_string(bytes(tile)) +
                               " bytes, and the limit is " + std::to_string(limit) + "; choose a smaller tile");
  return tile;
}
void refuse_portable_attention() {
  fail(ErrorKind::usage, "attention: the portable kernel is for GPUs; on the CPU choose flash or tiled");
}

void refuse(const char* kernel, const char* reason, const KernelCall& call) {
  std::string message = std::string(kernel) + ": " + reason + ":";
  for (int i = 0; i < call.n_in; ++i) message += " " + describe(call.in[i]);
  message += " ->";
  for (int i = 0; i < call.n_out; ++i) message += " " + describe(call.out[i]);
  fail(ErrorKind::other, message);
}

}  // namespace sinter::cpu
