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

void refuse(const char* kernel, const char* reason, const KernelCall& call) {
  std::string message = std::string(kernel) + ": " + reason + ":";
  for (int i = 0; i < call.n_in; ++i) message += " " + describe(call.in[i]);
  message += " ->";
  for (int i = 0; i < call.n_out; ++i) message += " " + describe(call.out[i]);
  fail(ErrorKind::other, message);
}

}  // namespace sinter::cpu
