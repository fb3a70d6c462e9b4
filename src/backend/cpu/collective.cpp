#include "backend/cpu/isa.h"
#include "backend/process_group.h"

namespace sinter::SINTER_CPU_ISA {

void collective(const KernelCall& call) { run_collective(call); }

}  // namespace sinter::SINTER_CPU_ISA
