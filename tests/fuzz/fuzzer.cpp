// libFuzzer's entry: SINTER_READER names the reader that its bytes are given to (tools/fuzz.sh).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "support/readers.h"

// GCC calls this at each edge, where clang would count in place; libFuzzer's own only says that it wants clang.
static std::uint8_t edges[1 << 16];
extern "C" void __sanitizer_cov_8bit_counters_init(std::uint8_t* begin, std::uint8_t* end);
extern "C" __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  ++edges[std::uint64_t(place) * 0x9e3779b97f4a7c15u >> 48];
}
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  __sanitizer_cov_8bit_counters_init(edges, edges + sizeof(edges));
  return 0;
}
// Comparisons that clang says nothing of.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const char* reader = std::getenv("SINTER_READER");
  if (!reader) {
    std::fputs("SINTER_READER names none\n", stderr);
    std::exit(2);
  }
  sinter::read_as(reader, {reinterpret_cast<const char*>(data), size});
  return 0;
}
