#include "compile/arena.h"

#include "compile/executable.h"
#include "ops/dispatch.h"

namespace sinter::compile {

const Ref<Storage>& Arena::at_least(int64_t bytes) {
  if (storage_ && storage_->bytes >= bytes) return storage_;
  CachingAllocator& allocator = allocator_of(device_);
  if (storage_) {
    for (Executable* e : users_) e->forget_addresses();
    storage_ = {};
    allocator.release_cached();  // or what was given back would lie beside what is taken now
  }
  CategoryScope scope(MemoryCategory::activation);
  storage_ = new Storage(allocator, bytes, pool_ ? pool_ : current_stream(device_));
  return storage_;
}

}  // namespace sinter::compile
