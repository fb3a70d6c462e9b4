// Work for times when the pool's threads would be idle (Note [Idle time] in stream.h). Not in
// thread_pool.h, which kernels include.
#pragma once
#include <cstdint>
#include <functional>

namespace sinter::cpu {

// Asides are run one at a time, in their order, by the pool's threads, and the ranges of what they call in parallel
// come after all others. One that is not ready yet holds up those after it. They throw nothing.
struct Aside {
  std::function<void()> run;
  std::function<bool()> ready;
};
void add_aside(Aside aside);
// Does some of it in the calling thread. False: there is nothing to do now.
bool help_asides();
// Whoever waits for something that is done beside it looks again when there are news: there is work to share, or a
// call of a stream is over, and what waited for it is ready.
uint32_t pool_news();
void tell_pool_news();
void wait_for_pool_news(uint32_t seen);  // until there are others
// What this thread calls in parallel stays on it: it is not one of those that share the cores.
void use_no_other_threads();

}  // namespace sinter::cpu
