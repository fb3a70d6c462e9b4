// The op that stands for a fused tree in a compiled step.
#include "ops/rules.h"
#include "ops/table.h"

namespace sinter::ops {
namespace {

void never_called(const OpCall& c, OutSpecs&) {
  fail_with(ErrorKind::other, "{}: only a compiled step contains it", c.op.name);
}

}  // namespace

const OpDef fused{.name = "fused", .infer = never_called, .kernel = &KernelTable::fused};

}  // namespace sinter::ops
