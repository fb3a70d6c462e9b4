// Work for times when the pool's threads would be idle (Note [Idle time] in side_stream.h). Not in
// thread_pool.h, which kernels include.
#pragma once
#include <functional>

namespace sinter::cpu {

// Asides are run one at a time, in their order, by the pool's threads, and the ranges of what they call in parallel
// come after all others. They throw nothing.
void add_aside(std::function<void()> aside);
// Does some of it in the calling thread. False: there is nothing to do.
bool help_asides();

}  // namespace sinter::cpu
