// Parameters in units over one flat buffer per role.
//
// Note [Flat roles]: each role (master, 16-bit copy, gradient, each moment) is one contiguous buffer with the same
// offsets, so AdamW is one launch, clipping one reduction, a communication bucket or an optimizer shard a range. Units
// (embedding, each layer, head) lie in the order in which their gradients arrive, that is, from the last to the first;
// inside a unit matrices come first and vectors (norms) after them; frozen ones come last of all, beyond the end of the
// roles they do not have. Parameters that share an input (q, k, v; gate, up) are declared as a group: they lie side by
// side and are one leaf, so their merged GEMM needs no copy.
//
// Roles have names, and an optimizer adds its own: whoever saves, loads, shards, predicts or prints goes through
// roles(). Their memory never moves while it is there, because compiled steps hold its addresses: loading writes in
// place.
//
// Note [Versions by unit]: Role::version(unit) changes whenever the unit's numbers may have, so that whoever keeps
// something made from them can tell that it is stale. An op that writes in place does not say where, and counts for
// every unit; what is done through write_within() counts for those it names. The 16-bit copy follows the master, when
// it is next read or at refresh_stale_low_copy(): what is made from a copy depends on the master's version.
//
// Note [Shards]: ranks that train together can divide roles among them. What is divided is a stretch: the matrices of a
// unit, of which every rank owns an equal share; vectors and frozen parameters stay whole on every rank. Offsets are
// those of the whole everywhere, and Role::range() finds them in what memory this rank has:
//
//   level        master                       copy     gradient   moments
//   none         whole                        whole    whole      whole
//   broadcast    whole                        whole    whole      sharded, by whole stretches
//   optimizer    sharded if there is a copy   whole    whole      sharded
//   gradients    sharded if there is a copy   whole    sharded    sharded
//   parameters   sharded                      absent   sharded    sharded
//
// Of a role that is not whole, a stretch can be lent memory for all of it for a while: to be gathered before ops read
// it, or to hold gradients until ranks have added theirs up. An op that reads a parameter whose memory is away asks for
// it (Lender in core/tensor.h). Who communicates is dist/sharding.h.
#pragma once
#include <functional>
#include <list>
#include <memory>
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

enum class ShardLevel { none, broadcast, optimizer, gradients, parameters };
constexpr int shard_level_count = 5;
const char* name_of(ShardLevel level);
ShardLevel shard_level_named(const std::string& name);

class Parameters {
 public:
  struct Shards {
    ShardLevel level = ShardLevel::none;
    int rank = 0, ranks = 1;
    bool whole_gradient = false;  // also where the level shards it
  };
  struct Options {
    DeviceType device = DeviceType::cpu;
    DType master = DType::f32;
    std::optional<DType> compute;  // the type of the 16-bit copy, if there is one
    uint64_t seed = 0;
    void* pool = nullptr;  // of the device's allocator, for what ranks communicate; null: with everything else
    Shards shards = {};
  };
  explicit Parameters(const Options& options);
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
    int unit = 0;        // its place in units()
    int64_t offset = 0;  // elements, the same in every role
    Tensor value;        // its view of the master; Role::view gives those of the others
  };
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of declaration
  const Entry& find(const std::string& name) const;
  int64_t count() const;  // scalars, without padding
  int64_t trainable_size() const { return trainable_size_; }

  struct Unit {
    std::string name;
    int index = 0;               // its place in units()
    int64_t begin = 0, end = 0;  // of its trainable part
  };
  const std::vector<Unit>& units() const { return units_; }

  // Leaves of a unit that lie side by side and are divided alike (Note [Shards]); by offset, and the frozen ones last.
  struct Stretch {
    int index = 0;                       // its place in stretches()
    int unit = 0;                        // -1: frozen
    int64_t begin = 0, end = 0;          // with the padding after it …
    int64_t used_end = 0;                // … and without
    bool cut = false;                    // ranks own shares of it; otherwise each has all
    int64_t own_begin = 0, own_end = 0;  // what this rank updates; nothing where another owns all of it
    int owner = 0;                       // by level broadcast: the rank that owns all of it
  };
  const std::vector<Stretch>& stretches() const { return stretches_; }
  const Stretch& stretch_at(int64_t offset) const;
  std::pair<int64_t, int64_t> owned(const Stretch& stretch, int rank) const;  // what any rank updates

  // A leaf that gets gradients, and where it and its parameters lie in every role; by offset.
  struct TrainableLeaf {
    Leaf* leaf;
    int64_t begin, end;  // with the padding after it
    std::vector<std::pair<int64_t, int64_t>> entries;
  };
  std::vector<TrainableLeaf> trainable_leaves() const;

  class Role {
   public:
    enum Extent { all, trainable };
    enum Place { whole, sharded, absent };  // absent: only what is not cut has memory
    Role(const Parameters& of, std::string name, DType dtype, MemoryCategory category, Extent extent, Place place)
        : name(std::move(name)), dtype(dtype), category(category), extent(extent), place(place), of_(of) {}
    Role(const Role&) = delete;  // it is known by its address
    Role& operator=(const Role&) = delete;
    const std::string name;
    const DType dtype;
    const MemoryCategory category;
    const Extent extent;
    const Place place;

    int64_t bytes() const { return size_ * size_of(dtype); }  // that it takes on this rank, where it has memory
    // Undefined while there is no memory, and so are its parts. Inside a trace a promised gradient counts as memory.
    const Tensor& flat() const;
    // Undefined also where it is not this rank's: [begin, end) of a sharded role must lie in what the rank owns of one
    // stretch, or in one that was lent.
    Tensor range(int64_t begin, int64_t end) const;
    Tensor part(const Unit& unit) const { return range(unit.begin, unit.end); }
    Tensor view(const Entry& entry) const;      // undefined also where a frozen parameter lacks the role
    uint32_t version(const Unit& unit) const {  // Note [Versions by unit]
      return writes() - elsewhere_[size_t(unit.index)];
    }
    bool lacks(const Stretch& s) const { return place != whole && s.cut; }  // memory for all of it
    const Tensor& lent(const Stretch& s) const { return lent_[size_t(s.index)].memory; }

   private:
    friend class Parameters;
    uint32_t writes() const { return flat_.defined() ? flat_.impl().storage->version : 0; }
    void set_memory(Tensor flat);
    const Parameters& of_;
    Tensor flat_;
    int64_t end_ = 0;          // of its extent
    int64_t size_ = 0;         // elements of its memory
    std::vector<int64_t> at_;  // by stretch: where this rank's part lies in it
    struct Lent {
      Tensor memory;
      int64_t begin = 0;  // the offset of its first element
    };
    std::vector<Lent> lent_;           // by stretch
    std::vector<uint32_t> elsewhere_;  // by unit: how many of the writes are known to have passed it by
  };
  // "master", "copy" (with mixed precision), "gradient", then what was added, oldest first.
  const std::list<Role>& roles() const { return roles_; }
  const Role& role(const std::string& name) const;
  const Role& add_role(const std::string& name, DType dtype, MemoryCategory category);  // zeros, for the trainable part
  void remove_role(const std::string& name);                                            // one that was added
  const Tensor& master() const { return master_->flat(); }
  const Tensor& grad() const { return gradient_->flat(); }  // undefined before the first backward pass
  const Tensor& low_copy() const;                           // undefined without mixed precision

  // Writes one parameter of a role in place; shape, type and device of the values must be its own. For the master the
  // copy follows, and a gradient counts as one that has arrived.
  void load(const std::string& role, const std::string& name, const Tensor& values);
  // Runs `write`, which changes roles inside [begin, end) alone: other units' versions and copies stay as they are.
  void write_within(int64_t begin, int64_t end, const std::function<void()>& write);

  // Of a role that lacks the stretch: memory for all of it, with undefined contents but for zeros in padding …
  Tensor memory_for(const Role& role, const Stretch& stretch) const;
  void lend(const Role& role, const Stretch& stretch, const Tensor& memory);  // … where leaves then have it …
  void take_back(const Role& role, const Stretch& stretch);                   // … until it goes.
  // A gradient that the step it is traced in uses up needs no memory of its own: while this is on, none is promised,
  // and every stretch of it is lent; once it is reduced, only this rank's share.
  void set_transient_gradient(bool on) { transient_gradient_ = on; }
  bool has_transient_gradient() const { return transient_gradient_; }
  void lend_share(const Stretch& stretch, const Tensor& memory);
  // Asked when an op reads, or a backward pass writes, what is away; it lends it.
  using Missing = std::function<void(const Role&, const Stretch&)>;
  void when_missing(Missing missing) { missing_ = std::move(missing); }

  // Of the trainable part, contiguous ranges that this rank updates and whose gradients arrived; others' are zeroed.
  std::vector<std::pair<int64_t, int64_t>> ranges_with_grad() const;
  void zero_grad() const;
  void refresh_stale_low_copy();     // casts what changed in the master since
  void low_copy_is_current() const;  // the optimizer wrote it

 private:
  class Absence;  // of one leaf's memory in one role
  struct LeafEntry {
    Tensor tensor;
    int unit, first_entry, entry_count;
    int64_t offset = 0, end = 0;
    int stretch = 0;
    bool frozen = false;
    bool is_vector() const { return tensor.rank() == 1; }
    bool has_current_copy(uint32_t master_writes) const { return tensor.impl().low_copy_version == master_writes; }
  };
  void lay_out();
  void cut(Stretch& stretch, std::vector<int64_t>& taken) const;
  void give_memory(Role& role);
  void fill_with_initial_values(const Stretch& stretch);
  void point(const Role& role, const Stretch& stretch);
  LeafEntry& leaf_with(const Entry& entry);
  template <class F> std::vector<std::pair<int64_t, int64_t>> ranges_of(const F& wanted) const;

  Options options_;
  std::vector<LeafEntry> leaves_;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  std::vector<Unit> units_;
  std::vector<int> order_;  // leaves by offset
  std::vector<Stretch> stretches_;
  std::vector<std::unique_ptr<Absence>> absences_;
  Missing missing_;
  bool transient_gradient_ = false;
  std::list<Role> roles_;
  Role *master_, *copy_ = nullptr, *gradient_;
  int64_t trainable_size_ = 0, total_size_ = 0;
};

}  // namespace sinter
