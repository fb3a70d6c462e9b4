// Little trainers, and all that a checkpoint keeps of one.
#pragma once
#include <map>

#include "nn/transformer.h"
#include "support/values.h"
#include "train/checkpoint.h"

namespace sinter {

struct RunSetting {
  bool compiled = false;
  std::string dtype = "fp32";
  MakeOptimizer optimizer = make_adamw({{.learning_rate = 0.01, .max_norm = 0.5}});
  uint64_t seed = 1;
  ModelConfig model = [] {
    ModelConfig c;
    c.d_model = 16, c.d_ff = 24, c.layers = 1, c.heads = 2, c.vocab = 19, c.ctx = 6;
    return c;
  }();
};

inline std::unique_ptr<Trainer> trainer_of(const RunSetting& s) {
  TrainerOptions o;
  o.precision = precision_named(s.dtype);
  o.seed = s.seed;
  o.optimizer = s.optimizer;
  if (s.compiled) o.compiled = compile::CompileOptions{};
  return std::make_unique<Trainer>(s.model, o, make_transformer);
}

// Steps [from, to); the losses.
inline Values train(Trainer& trainer, int64_t from, int64_t to) {
  Values losses;
  for (int64_t step = from; step < to; ++step)
    losses.push_back(trainer.step(random_batch(2, 6, 19, uint64_t(step), DeviceType::cpu), 0.01 / double(1 + step)));
  return losses;
}

// Bytes by name; `gradient` and `copy` are made anew by every step.
using State = std::map<std::string, std::string>;
inline State state_of(Trainer& trainer) {
  State all;
  for (const Parameters::Role* role : lasting_roles(trainer.parameters()))
    for (const auto& e : trainer.parameters().entries())
      if (Tensor t = role->view(e); t.defined())
        all[role->name + "/" + e.name].assign(t.data_as<char>(), size_t(t.bytes()));
  std::vector<double> numbers = trainer.optimizer().state();
  all["optimizer"].assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  return all;
}

// Saves, and waits until that is done; what went wrong.
inline std::string saved(Checkpoints& checkpoints, int64_t step, const Json& config = Json::object()) {
  checkpoints.save(step, config);
  std::vector<SaveResult> results = checkpoints.wait();
  EXPECT_EQ(results.size(), 1u);
  return results.empty() ? "no result" : results[0].error;
}

}  // namespace sinter
