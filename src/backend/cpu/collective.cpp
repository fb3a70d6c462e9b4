#include "backend/cpu/isa.h"
#include "backend/process_group.h"

namespace sinter::SINTER_CPU_ISA {

// Done when it returns, whichever thread its stream is.
void collective(const KernelCall& call) { run_collective(call, nullptr); }

}  // namespace sinter::SINTER_CPU_ISA
