// Adds up what ops have to do, by the range they run in.
#pragma once
#include <map>

#include "core/range.h"
#include "ops/dispatch.h"

namespace sinter {

struct OpCost {
  int64_t calls = 0;
  double matmul_flops = 0;    // by the convention that counts attention in full
  double executed_flops = 0;  // of GEMMs, as run
  double other_flops = 0, bytes = 0;
  double wire_bytes = 0;  // that this rank sends to others

  double executed() const { return executed_flops + other_flops; }
  void add(const OpCost& o) {
    calls += o.calls;
    matmul_flops += o.matmul_flops, executed_flops += o.executed_flops, other_flops += o.other_flops;
    bytes += o.bytes, wire_bytes += o.wire_bytes;
  }
};

class CostCounter : public Interceptor {
 public:
  void called(const OpCall& call, TensorPtrs, const Outputs& outputs) override {
    if (!call.op.kernel) return;
    Cost c = call.op.cost ? call.op.cost(call, outputs) : Cost{};
    add(c, bytes_moved(call, outputs));
  }
  void replayed(const OpDef&, const Cost& c, double bytes) override { add(c, bytes); }
  std::map<uint32_t, OpCost> by_range;  // ranges of kind op

 private:
  void add(const Cost& c, double bytes) {
    by_range[Range::current().id].add({1, c.matmul_flops, c.executed(), c.other_flops, bytes, c.wire_bytes});
  }
};

}  // namespace sinter
