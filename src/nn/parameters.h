// Parameters in units over one flat buffer per role.
//
// Note [Flat roles]: each role (master, 16-bit copy, gradient, each moment) is one contiguous buffer with the same
// offsets, so AdamW is one launch, clipping one reduction, a communication bucket or an optimizer shard a range. Units
// (embedding, each layer, head) lie in the order in which their gradients arrive, that is, from the last to the first;
// inside a unit matrices come first and vectors (norms) after them; frozen ones come last of all, beyond the end of the
// roles they do not have. Parameters that share an input (q, k, v; gate, up) are declared as a group: they lie side by
// side and are one leaf, so their merged product needs no copy.
#pragma once
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "autograd/tape.h"

namespace sinter {

struct Init {
  enum Kind { truncated_normal, ones, zeros } kind = truncated_normal;
  double std = 1;                               // of the normal, cut at ±3 std
  static Init linear(int64_t in, int64_t out);  // std √(2/(in+out))
};

struct ParameterSpec {
  std::string name;
  Dims dims;
  Init init;
};

class Parameters {
 public:
  struct Options {
    DeviceType device = DeviceType::cpu;
    DType master = DType::f32;
    std::optional<DType> compute;  // the type of the 16-bit copy, if there is one
    uint64_t seed = 0;
  };
  explicit Parameters(const Options& options) : options_(options) {}
  ~Parameters();
  Parameters(const Parameters&) = delete;  // leaves know it
  Parameters& operator=(const Parameters&) = delete;
  const Options& options() const { return options_; }

  // Declaring: the returned leaf has its shape now and its memory after allocate().
  void begin_unit(const std::string& name);
  Tensor add(const ParameterSpec& spec) { return add_group({spec}); }
  Tensor add_group(const std::vector<ParameterSpec>& parts);  // joined along the first dimension
  void freeze(const std::string& name);                       // a leaf without gradient and moments
  void allocate();       // makes the buffers and fills them with initial values …
  void allocate_grad();  // … except the gradient's, which the first backward pass makes; a trace only promises it
  void release_grad();   // unless it holds something or is held by others; the next backward pass makes it again

  // One named parameter, as checkpoints and people see it.
  struct Entry {
    std::string name;
    Dims dims;
    Init init;
    int64_t offset = 0;  // elements, the same in every role
    Tensor value, grad;  // views; grad undefined when frozen, and before allocate_grad()
  };
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of declaration
  const Entry& find(const std::string& name) const;
  int64_t count() const;  // scalars, without padding

  struct Unit {
    std::string name;
    int64_t begin = 0, end = 0;  // of its trainable part
  };
  const std::vector<Unit>& units() const { return units_; }

  const Tensor& master() const { return master_; }      // all of it
  const Tensor& grad() const { return grad_; }          // of the trainable part; undefined before allocate_grad()
  const Tensor& low_copy() const { return low_copy_; }  // undefined without mixed precision
  int64_t trainable_size() const { return trainable_size_; }
  Tensor new_role(DType dtype, MemoryCategory category) const;  // a zeroed buffer over the trainable part

  // Contiguous stretches of the trainable part whose gradients arrived; those of the others are zeroed.
  std::vector<std::pair<int64_t, int64_t>> ranges_with_grad() const;
  void zero_grad() const;
  void refresh_low_copy() const;        // one cast over everything
  void refresh_stale_low_copy() const;  // … if a master changed since
  void low_copy_is_current() const;     // the optimizer wrote it

 private:
  struct LeafEntry {
    Tensor tensor;
    int unit, first_entry, entry_count;
    int64_t offset = 0;
    bool frozen = false;
    bool is_vector() const { return tensor.rank() == 1; }
  };
  void lay_out();

  Options options_;
  std::vector<LeafEntry> leaves_;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  std::vector<Unit> units_;
  std::vector<int> order_;  // leaves by offset
  Tensor master_, grad_, low_copy_;
  int64_t trainable_size_ = 0, total_size_ = 0;
};

}  // namespace sinter
