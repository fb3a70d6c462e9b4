// The process's only pool of CPU threads. Kernels and GEMMs share it, so nothing is ever oversubscribed.
#pragma once
#include <cstdint>

namespace sinter::cpu {

// SINTER_THREADS, or what affinity and the container's CPU quota allow.
int threads();
void set_threads(int n);  // not while kernels run

// Calls run(context, begin, end) on disjoint ranges that cover [0, n), on several threads, and returns when all are
// done. Ranges begin at multiples of grain, and are of at most `most` (a multiple of it); work that is not worth
// sharing (n <= grain), and calls from inside a range or while another thread uses the pool, run in the caller as one
// range. The first exception is rethrown here.
using RangeFunction = void (*)(const void* context, int64_t begin, int64_t end);
void parallel_ranges(int64_t n, int64_t grain, int64_t most, RangeFunction run, const void* context);

}  // namespace sinter::cpu

namespace sinter {
namespace {

// The same for a lambda f(begin, end). Anonymous, so that each kernel file has its own copy
// (Note [Two instruction sets]).
template <class F>
[[gnu::always_inline]] inline void parallel_for(int64_t n, int64_t grain, const F& f, int64_t most = INT64_MAX) {
  cpu::parallel_ranges(
      n, grain, most,
      [](const void* context, int64_t begin, int64_t end) { (*static_cast<const F*>(context))(begin, end); }, &f);
}
// Long pieces, f(i): whoever is free takes the next, so that nobody is left with several at the end.
template <class F> [[gnu::always_inline]] inline void parallel_pieces(int64_t n, const F& f) {
  parallel_for(
      n, 1,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) f(i);
      },
      1);
}

}  // namespace
}  // namespace sinter
