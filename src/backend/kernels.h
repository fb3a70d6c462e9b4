// The kernel table of a backend: one function pointer per line of kernels.def, null where the backend lacks it.
#pragma once
#include "core/kernel_call.h"

namespace sinter {

struct KernelTable {
#define KERNEL(name) Kernel name = nullptr;
#include "backend/kernels.def"
#undef KERNEL
};

}  // namespace sinter
