// Data parallelism: every rank has all parameters and its own batch, and gradients are averaged over ranks before the
// update. It listens to the leaves; model, tape and optimizer know nothing of it.
//
// Note [Strategies]: gradients lie in one flat buffer in the order in which they arrive, so a bucket is a range of it,
// and nothing is copied between gradient and bucket.
//   naive     one all-reduce for each parameter, after the backward pass
//   flat      one for everything, after the backward pass
//   overlap   one for each parameter, as soon as its gradient is complete
//   bucketed  one for each bucket, as soon as all its gradients are complete, strictly in their order
// Every sum has the ranks' order, so that all four give the same bits where the group adds in a fixed order (shm).
#pragma once
#include <string>
#include <vector>

#include "dist/parallel.h"

namespace sinter::dist {

enum class Strategy { naive, flat, overlap, bucketed };
constexpr int strategy_count = 4;
const char* name_of(Strategy s);
Strategy strategy_named(const std::string& name);

struct DataParallelOptions {
  Strategy strategy = Strategy::bucketed;
  double bucket_mb = 25;  // MiB, as PyTorch's bucket_cap_mb
};

class DataParallel : public Parallel {
 public:
  // Once the parameters are allocated; they and the group must outlive it. Every rank then has rank 0's parameters.
  DataParallel(Parameters& parameters, ProcessGroup& group, const DataParallelOptions& options);
  ~DataParallel() override;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Gradients stay the rank's own in all micro-batches of a step but the last; refuses if a parameter got none.
  void begin_backward(Window window) override;
  void finish_backward() override;
  void average(const Tensor& x) const override;
  void step(Optimizer& optimizer) override { optimizer.step(); }

  struct Bucket {
    int64_t begin, end;  // elements of the flat gradient
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }  // what is reduced at once, by the strategy
  ProcessGroup& group() const override { return group_; }

 private:
  void arrived(size_t leaf);
  void reduce(const Bucket& bucket) const;
  void make_buckets();

  Parameters& parameters_;
  ProcessGroup& group_;
  DataParallelOptions options_;
  std::vector<Parameters::TrainableLeaf> leaves_;  // by offset
  std::vector<Bucket> buckets_;
  std::vector<size_t> first_bucket_;  // of each leaf; its last is before that of the next, or the same
  std::vector<int> waits_for_;        // leaves of each bucket that have not arrived
  size_t next_ = 0;                   // the first bucket that is not under way
  bool sync_ = false;
};

// Refuses ranks whose parameters differ, naming the first that does. By all ranks of the group.
void check_replicas(ProcessGroup& group, const Parameters& parameters, int64_t step);

}  // namespace sinter::dist
