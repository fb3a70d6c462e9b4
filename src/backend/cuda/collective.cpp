#include "backend/cuda/runtime.h"
#include "backend/process_group.h"

namespace sinter::cuda {

void collective(const KernelCall& call) { run_collective(call, call.stream); }

}  // namespace sinter::cuda
