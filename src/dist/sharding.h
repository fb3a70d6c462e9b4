// Sharded training (ZeRO): ranks divide what data parallelism keeps on each of them, level by level (Note [Shards] in
// nn/parameters.h).
//
// Note [Levels]: what is reduced and gathered at once is a stretch: the matrices of a unit. Vectors are all-reduced,
// and every rank updates them.
//   broadcast   gradients are all-reduced, each rank updates the stretches it owns, and broadcasts them: what a wrapper
//               around an optimizer can do. 3Ψ on the wire, where Ψ is all parameters.
//   optimizer   gradients are reduce-scattered as they arrive, each rank updates its share, shares are gathered. 2Ψ.
//   gradients   the same, and once it is reduced only the rank's share of a gradient is kept.
//   parameters  parameters too are kept as shares: gathered when an op reads one, given back after use. 3Ψ.
// Sums have the order of ranks, so that all levels have the bits of data parallelism where the group adds in that
// order, and micro-batches do not come between.
//
// Note [Gathering ahead]: the first pass gathers when something is read. It is remembered in which order that was, and
// from then on the next two are under way while one is used. Where a pass takes another way it gathers on demand again.
// A trace gathers on demand only: the pass `gathers` (compile/passes) places the calls.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "dist/parallel.h"
#include "nn/parameters.h"

namespace sinter::dist {

struct ShardOptions {
  ShardLevel level = ShardLevel::none;
  bool reshard_after_forward = true;  // parameters: given back after the forward pass, and gathered again for backward
  bool accumulate_unsharded = false;  // micro-batches add up whole gradients, and only the last is reduced
};
Parameters::Shards shards_of(const ShardOptions& options, const ProcessGroup& group);

class Sharding : public Parallel {
 public:
  // Once the parameters are allocated, with shards_of(options, group); they and the group must outlive it.
  Sharding(Parameters& parameters, ProcessGroup& group, const ShardOptions& options);
  ~Sharding() override;

  ProcessGroup& group() const override { return group_; }
  void begin_pass() override;
  void end_pass() noexcept override;
  void begin_backward(Window window) override;
  void finish_backward() override;
  void average(const Tensor& x) const override;
  void step(Optimizer& optimizer) override;
  void refresh() override;
  void was_replayed() override { note_gathered(); }
  void reduce_all();  // after a backward pass outside begin_backward() and finish_backward()
  void gather_copies(const std::vector<uint32_t>* known = nullptr);  // whole ones; of units with other versions alone

  // All of a role, as without shards, on every rank: for checkpoints and tests. By all ranks of the group, and of a
  // gradient only once it is reduced.
  Tensor gathered(const std::string& role, const Parameters::Entry& entry);

 private:
  using Role = Parameters::Role;
  using Stretch = Parameters::Stretch;
  struct Key {
    const Role* role;
    int stretch;
    bool operator==(const Key&) const = default;
    bool operator<(const Key& o) const { return std::tie(role, stretch) < std::tie(o.role, o.stretch); }
  };
  struct Gathering {
    Tensor memory;
    int64_t collectives;  // that must be over
  };
  struct Reduction {
    const Stretch* stretch;
    Tensor share;  // to be added to what there is; undefined: it was written where it belongs
    int64_t collectives;
  };

  void missing(const Role& role, const Stretch& stretch);
  Gathering start_gathering(const Role& role, const Stretch& stretch);
  void gather_ahead();
  void give_back_others(int unit);
  void arrived(size_t leaf);
  void reduce(const Stretch& stretch);
  void finish_reductions(int except_unit);
  void refuse_missing(const std::vector<std::string>& names) const;
  void gather_updated(const Stretch& stretch);
  Tensor squares();
  void note_gathered();
  DeviceType device() const { return parameters_.options().device; }

  Parameters& parameters_;
  ProcessGroup& group_;
  ShardOptions options_;
  const Role &master_, &gradient_, *copy_;
  std::vector<Parameters::TrainableLeaf> leaves_;
  std::vector<int> stretch_of_, waits_for_;  // by leaf; by stretch: leaves whose gradients have not arrived
  Window window_;
  bool backward_ = false, reducing_ = false, stepping_ = false;
  std::vector<Key> order_[2];  // of what was missing in a forward and a backward pass
  size_t at_ = 0;              // in the order of the one that runs
  std::map<Key, Gathering> ahead_;
  std::set<Key> here_;  // lent now, of the roles that ops read
  std::deque<Reduction> reductions_;
  std::vector<uint32_t> gathered_;  // by unit: the master's version that whole copies were made from
};

// Wraps any optimizer: for loops of one's own, where gradients are whole and lie in Parameters of level optimizer.
class ShardedOptimizer {
 public:
  explicit ShardedOptimizer(ProcessGroup& group) : group_(group) {}
  // One more group of parameters with its own optimizer; also between steps. They must outlive this.
  Optimizer& add(Parameters& parameters, const MakeOptimizer& make, bool loss_scaling = false);
  // Averages gradients over ranks, updates, gathers. By all ranks; refuses parameters that got no gradient.
  void step(double learning_rate);
  void zero_grad();
  void refresh();  // after parameters were loaded: 16-bit copies follow. By all ranks

 private:
  struct Part {
    Parameters* parameters;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Sharding> sharding;
  };
  ProcessGroup& group_;
  std::vector<Part> parts_;
};

}  // namespace sinter::dist
