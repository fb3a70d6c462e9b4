// The log of a training run: a JSON object on each line, one for each step.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lab/curve.h"
#include "system/json.h"

namespace sinter::lab {

class TrainingLog {
 public:
  // Refuses a file that holds something, unless it is of the run that goes on: then what lies beyond `after`, the last
  // step that counts, goes, and so does a line that was cut off. An empty path: no log.
  TrainingLog(const std::string& path, std::optional<int64_t> after);
  ~TrainingLog();
  TrainingLog(const TrainingLog&) = delete;
  TrainingLog& operator=(const TrainingLog&) = delete;

  // Each line is one write to the end of the file. Why it failed, the first time that it does; training goes on.
  std::string add(const Json& line);
  double elapsed_s() const { return elapsed_s_; }  // of the run before it was resumed

 private:
  std::string path_;
  int fd_ = -1;
  double elapsed_s_ = 0;
  bool failed_ = false;
};

void refuse_existing_log(const std::string& path);    // one that holds something
bool is_training_log(const std::string& path);        // begins like one
std::vector<Json> read_log(const std::string& path);  // refuses what is none, naming the line
Curve curve_of(const std::vector<Json>& lines);

}  // namespace sinter::lab
