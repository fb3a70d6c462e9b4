// Links the installed library, both backends included, and asks each what it is.
#include <cstdio>
#include <sinter/sinter.hpp>

#include "backend/device.h"

int main() {
  std::printf("cpu: %s\n", sinter::cpu_backend().info().name.c_str());
  if (auto* cuda = sinter::cuda_backend()) {
    std::printf("cuda: %s\n", cuda->info().name.c_str());
  } else {
    std::printf("cuda: none (%s)\n", sinter::cuda_missing_reason());
  }
  try {
    sinter::fail(sinter::ErrorKind::usage, "refused");
  } catch (const sinter::Error& e) {
    return e.kind() == sinter::ErrorKind::usage ? 0 : 1;
  }
}
