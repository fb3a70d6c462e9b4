// When the tasks of a step run: lanes side by side, as the executor runs them.
//
// Note [Sharing a device]: tasks of several lanes that compute at the same time each have an equal part of the device,
// so that together they take as long as one after the other. While a collective runs, what computes beside it loses
// Machine::overlap of its rate.
#pragma once
#include <vector>

#include "plan/work.h"
#include "profile/trace.h"

namespace sinter::plan {

struct Piece {
  int task;
  double begin, end;  // s
};

struct Timeline {
  double seconds = 0;        // of the step
  double communication = 0;  // in which a collective runs …
  double exposed = 0;        // … and nothing computes
  double busy = 0;           // in which something computes
  std::vector<Piece> pieces;
};

struct Conditions {
  double slow_device = 1;  // its tasks take so many times as long, and others wait for it in collectives
  double slow_link = 1;    // collectives take so many times as long
};

Timeline simulate(const Work& work, const Machine& machine, const Network& network, const Conditions& conditions = {});

// In the profiler's form, so that it opens beside a measured one.
Trace trace_of(const Work& work, const Timeline& timeline, const Machine& machine, int64_t devices);

}  // namespace sinter::plan
