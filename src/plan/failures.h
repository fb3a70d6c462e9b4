// What failures cost a long run: how often one of many devices fails, how often to save, and what part of the time is
// left for training.
//
// Note [Goodput]: failures come at random, at the same rate at any time: N devices of which one fails every M seconds
// fail every M/N. Then all wait for the restart, which may fail too, and do again what came after the last checkpoint
// that was safe. A checkpoint holds training up for a while, and is safe only once it is written, during which training
// goes on. With failures at a rate of f = N/M, work of length t between checkpoints that cost s, and a restart of r:
//
//   time for t of work = e^(f·(r + w)) · (e^(f·(t + s)) − 1) / f        (Daly 2006; w, the writing, is done again too)
//
// The goodput is t over that. It is best where (1 − f·t) · e^(f·(t + s)) = 1, close to Young's t = √(2·s/f); but a
// checkpoint is not begun before the last one has been written.
#pragma once

namespace sinter::plan {

struct FailureCosts {         // all in seconds
  double device_failure = 0;  // from one failure of a device, with its share of all else that fails, to the next
  double save = 0;            // that training stands still for a checkpoint
  double write = 0;           // until that is safe, while training goes on
  double restart = 0;         // from a failure until training goes on
};

struct Goodput {
  double failure = 0;                      // s, from one failure of the job to the next
  double interval = 0;                     // s of work between checkpoints
  double training = 0;                     // parts of the time, which make one:
  double saving = 0, again = 0, down = 0;  // standing still for checkpoints, doing again what was lost, restarting
};

double best_interval(const FailureCosts& costs, double devices);
Goodput goodput_of(const FailureCosts& costs, double devices, double interval);

}  // namespace sinter::plan
