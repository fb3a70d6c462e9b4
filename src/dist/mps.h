// NVIDIA's Multi-Process Service for the ranks of one launch. Processes that share a GPU take turns on it; under MPS
// they run at the same time, as if they were one. The price is that a fault of one on the GPU reaches them all.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "system/process.h"

namespace sinter::dist {

class Mps {
 public:
  Mps();  // starts it, or refuses and says why
  ~Mps();
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  std::vector<std::pair<std::string, std::string>> variables() const;  // by which processes find it

 private:
  std::string folder_;
  ChildProcess control_;
};

bool mps_runs();  // this process's GPU work goes through one

}  // namespace sinter::dist
