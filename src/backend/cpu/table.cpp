#include "backend/cpu/isa.h"

namespace sinter::SINTER_CPU_ISA {

const KernelTable& table() {
  static constexpr KernelTable kernels = {
#define KERNEL(name) .name = name,
#include "backend/kernels.def"
#undef KERNEL
  };
  return kernels;
}

}  // namespace sinter::SINTER_CPU_ISA
