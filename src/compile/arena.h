// Memory for the steps' own buffers, shared by executables that never run at once: as
// large as the largest of them needs.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace sinter::compile {

class Executable;

class Arena {
 public:
  // `pool`: of the device's allocator, where the memory is to lie; null: with everything else.
  explicit Arena(DeviceType device, void* pool = nullptr) : device_(device), pool_(pool) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // At least so much. If there is less, all of it is given back before more is taken: executables forget their
  // addresses, and what they returned, which was to hold until the next call anyway.
  const Ref<Storage>& at_least(int64_t bytes);
  int64_t bytes() const { return storage_ ? storage_->bytes : 0; }

  void add(Executable& e) { users_.push_back(&e); }
  void remove(Executable& e) { std::erase(users_, &e); }

 private:
  DeviceType device_;
  void* pool_;
  Ref<Storage> storage_;
  std::vector<Executable*> users_;
};

}  // namespace sinter::compile
