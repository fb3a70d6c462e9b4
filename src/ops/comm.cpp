// Collectives: one op of all ranks of a group, in place where it can be. They run on the device's communication stream;
// eager callers say join_communication() before they read what one wrote, a compiled step finds that out by itself.
#include "backend/process_group.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/table.h"

namespace sinter {
namespace ops {
namespace {

const ProcessGroup& group_of(const OpCall& c) { return *c.attrs_as<CollectiveAttrs>().group; }

void infer_in_place(const OpCall& c, OutSpecs&) {
  rules::check_float(c, 0);
  check(c.in(0).is_contiguous(), "{}: the tensor must be contiguous", c.op.name);
}

template <int whole, int share> void infer_shared(const OpCall& c, OutSpecs&) {
  rules::check_float(c, 0);
  int64_t n = c.in(whole).numel(), part = c.in(share).numel();
  check(c.in(0).dtype() == c.in(1).dtype(), "{}: {} and {} tensors; both must have one type", c.op.name,
        name_of(c.in(0).dtype()), name_of(c.in(1).dtype()));
  check(n == part * group_of(c).size(), "{}: {} elements are not {} shares of {}", c.op.name, n, group_of(c).size(),
        part);
}

// What a ring, which sends least, sends from each rank.
template <int whole, int times> Cost wire_cost(const OpCall& c, const Outputs&) {
  double n = group_of(c).size();
  Cost cost;
  cost.wire_bytes = times * (n - 1) / n * double(c.in(whole).bytes());
  return cost;
}

}  // namespace

const OpDef all_reduce{.name = "all_reduce",
                       .infer = infer_in_place,
                       .cost = wire_cost<0, 2>,
                       .kernel = &KernelTable::collective,
                       .variant = int(CollectiveKind::all_reduce),
                       .kind = OpKind::communication,
                       .mutates = 1};
const OpDef broadcast{.name = "broadcast",
                      .infer = infer_in_place,
                      .cost = wire_cost<0, 1>,
                      .kernel = &KernelTable::collective,
                      .variant = int(CollectiveKind::broadcast),
                      .kind = OpKind::communication,
                      .mutates = 1};
const OpDef reduce_scatter{.name = "reduce_scatter",
                           .infer = infer_shared<0, 1>,
                           .cost = wire_cost<0, 1>,
                           .kernel = &KernelTable::collective,
                           .variant = int(CollectiveKind::reduce_scatter),
                           .kind = OpKind::communication,
                           .mutates = 0b10};
const OpDef all_gather{.name = "all_gather",
                       .infer = infer_shared<1, 0>,
                       .cost = wire_cost<1, 1>,
                       .kernel = &KernelTable::collective,
                       .variant = int(CollectiveKind::all_gather),
                       .kind = OpKind::communication,
                       .mutates = 0b10};

}  // namespace ops

void all_reduce(const Tensor& x, ProcessGroup& group, ReduceKind reduce) {
  dispatch(ops::all_reduce, Attrs::of(CollectiveAttrs{&group, reduce}), x);
}
void broadcast(const Tensor& x, ProcessGroup& group, int root) {
  check(root >= 0 && root < group.size(), "broadcast: there is no rank {} among {}", root, group.size());
  dispatch(ops::broadcast, Attrs::of(CollectiveAttrs{&group, ReduceKind::sum, root}), x);
}
void reduce_scatter(const Tensor& x, const Tensor& share, ProcessGroup& group, ReduceKind reduce) {
  dispatch(ops::reduce_scatter, Attrs::of(CollectiveAttrs{&group, reduce}), x, share);
}
void all_gather(const Tensor& share, const Tensor& x, ProcessGroup& group) {
  dispatch(ops::all_gather, Attrs::of(CollectiveAttrs{&group}), share, x);
}

}  // namespace sinter
