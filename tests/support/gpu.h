// GPU tests carry "Gpu" in their names and begin with SINTER_REQUIRE_GPU(); they skip, with the reason, where there is
// none.
#pragma once
#include <gtest/gtest.h>

#include "backend/device.h"

#define SINTER_REQUIRE_GPU() \
  if (sinter::cuda_backend() == nullptr) GTEST_SKIP() << "SKIPPED: no GPU: " << sinter::cuda_missing_reason()
