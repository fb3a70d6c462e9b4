// What a run consists of: one configuration.
#pragma once
#include <string>

#include "train/trainer.h"

namespace sinter {

enum class Mode { eager, compiled };  // calls run as they are made, or the pass is traced once and replayed
const char* name_of(Mode m);
Mode mode_named(const std::string& name);
const char* name_of(Pass p);
const char* name_of(Phase p);
Pass pass_named(const std::string& name);
DeviceType device_named(const std::string& name);  // cpu or cuda; refuses cuda where there is none, with the reason
std::string default_device();                      // cuda if there is a GPU

struct RunConfig {
  ModelConfig model;
  int64_t batch = 4;
  DeviceType device = DeviceType::cpu;
  Precision precision;
  Pass pass = Pass::step;
  Mode mode = Mode::eager;
  std::string passes = "all";  // of the compiler, as compile::passes_named takes them
  double memory_budget = 0;    // GiB that a compiled pass may take; 0: no limit
  uint64_t seed = 0;
  AdamWOptions adamw{{.learning_rate = 1e-4}};
  std::string attention_why;      // how model.attention came to be
  int64_t accumulate = 1;         // micro-batches of `batch` sequences that make a step
  ProcessGroup* group = nullptr;  // the ranks that run it together; null: this process alone
  dist::DataParallelOptions data_parallel;
  dist::ShardOptions shard;

  TrainerOptions trainer_options(DeviceType where) const;
  std::string text() const;  // "small, batch 4, ctx 256, bf16, flash attention, step"
};

}  // namespace sinter
