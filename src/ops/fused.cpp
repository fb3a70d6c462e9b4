// The op that stands for a fused tree in a compiled step.
#include "ops/rules.h"
#include "ops/table.h"

namespace sinter::ops {
const OpDef fused{.name = "fused", .infer = rules::only_compiled, .kernel = &KernelTable::fused, .kind = OpKind::fused};

}  // namespace sinter::ops
