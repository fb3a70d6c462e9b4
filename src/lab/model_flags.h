// The flags that say which model to run and how: the same for every command that runs one.
#pragma once
#include "lab/flags.h"
#include "lab/output.h"
#include "lab/sweep.h"

namespace sinter::lab {

class ModelFlags {
 public:
  // `without` names fields that the command has no use for.
  void declare(Flags& flags, const std::vector<std::string>& without = {});
  // What the flags say, over what --config says, once the command line has been read. The GPU is chosen then.
  SweepOptions sweep() const;
  const std::string& config_file() const { return config_; }

 private:
  SweepOptions given_;
  std::string config_;
};

}  // namespace sinter::lab
