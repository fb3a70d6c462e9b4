// GPU tests carry "Gpu" in their names and begin with SINTER_REQUIRE_GPU(); they skip, with the reason, where there is
// none.
#pragma once
#include <gtest/gtest.h>

#include "backend/device.h"

#define SINTER_REQUIRE_GPU() \
  if (sinter::cuda_backend() == nullptr) GTEST_SKIP() << "SKIPPED: no GPU: " << sinter::cuda_missing_reason()

// For tests over the whole table: an entry is null only where backend/kernels.def says CPU_KERNEL (any other would not link).
#define SINTER_REQUIRE_CUDA_KERNEL(op)                                      \
  SINTER_REQUIRE_GPU();                                                     \
  if ((op)->kernel && !(sinter::cuda_backend()->kernels().*((op)->kernel))) \
  GTEST_SKIP() << "SKIPPED: " << (op)->name << " has no CUDA kernel yet (CPU_KERNEL in backend/kernels.def)"
