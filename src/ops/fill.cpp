// Filling memory: constants and counter-based random numbers (core/philox.h). All write into a given tensor.
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

// A filler has no inputs; the tensor to fill comes as its destination, whose shape it takes.
void infer_filled(const OpCall& c, OutSpecs& out) { rules::same_as(0, c, out); }

OpDef filler(const char* name, Kernel KernelTable::*kernel, OpKind kind = OpKind::opaque) {
  return {
      .name = name, .infer = infer_filled, .kernel = kernel, .kind = kind, .mutates = 1, .accepts = rules::any_strides};
}

}  // namespace

const OpDef fill = filler("fill", &KernelTable::fill, OpKind::fill);
const OpDef random_normal = filler("random_normal", &KernelTable::random_normal);
const OpDef random_uniform = filler("random_uniform", &KernelTable::random_uniform);
const OpDef random_integers = filler("random_integers", &KernelTable::random_integers);

}  // namespace ops

namespace {

void fill_with(const OpDef& op, const Tensor& to, const Attrs& attrs) {
  NoGrad off;
  const Tensor* in[] = {&to};
  Destination d{{&to}, 0};
  dispatch_op(op, in, attrs, &d);
}

}  // namespace

void fill(const Tensor& to, double value) { fill_with(ops::fill, to, Attrs::of(FillAttrs{value})); }
void fill_normal(const Tensor& to, uint64_t seed, uint64_t stream, double std, double cut) {
  check(to.is_contiguous(), "fill_normal: the tensor must be contiguous");
  fill_with(ops::random_normal, to, Attrs::of(RandomAttrs{seed, stream, -cut, cut, std}));
}
void fill_uniform(const Tensor& to, uint64_t seed, uint64_t stream, double low, double high) {
  check(to.is_contiguous(), "fill_uniform: the tensor must be contiguous");
  fill_with(ops::random_uniform, to, Attrs::of(RandomAttrs{seed, stream, low, high, 1}));
}
void fill_integers(const Tensor& to, uint64_t seed, uint64_t stream, int64_t low, int64_t high) {
  check(to.is_contiguous() && low < high, "fill_integers: needs a contiguous tensor and low < high, not [{}, {})", low,
        high);
  fill_with(ops::random_integers, to, Attrs::of(RandomAttrs{seed, stream, double(low), double(high), 1}));
}

Tensor zeros(const Dims& dims, DType dtype, DeviceType device) { return full(dims, 0, dtype, device); }

Tensor full(const Dims& dims, double value, DType dtype, DeviceType device) {
  Tensor t = empty(dims, dtype, device);
  fill(t, value);
  return t;
}

}  // namespace sinter
