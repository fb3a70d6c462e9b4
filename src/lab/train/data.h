// The files that a training run reads, checked before any work.
#pragma once
#include "lab/train/options.h"
#include "train/token_windows.h"

namespace sinter::lab {

class TrainData {
 public:
  // Opens them; refuses what cannot be used whatever the model.
  explicit TrainData(const TrainFields& fields);

  int64_t vocabulary() const;  // that the files' formats name, or refuses: then it must be given
  // Cuts them into sequences for the model. `check_ids`: all of them, against its vocabulary; of several ranks one will
  // do.
  void cut(const ModelConfig& model, bool check_ids);
  Split windows;
  Json json() const;  // as records have it

 private:
  std::vector<TokenFile> train_, validation_;
  double fraction_ = 0;
  Json files_ = Json::array();
};

}  // namespace sinter::lab
