// The kernel table of the CUDA backend.
#include "backend/cuda/runtime.h"
#include "backend/kernels.h"

namespace sinter::cuda {

extern const KernelTable kernel_table;
const KernelTable kernel_table = {
#define KERNEL(name) .name = name,
#include "backend/kernels.def"
#undef KERNEL
};

}  // namespace sinter::cuda
