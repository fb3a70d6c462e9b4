// Memory that has a size but no place yet. A trace needs no more; whoever then really uses it asks for it,
// and otherwise it is never taken.
#pragma once
#include <functional>

#include "core/tensor.h"

namespace sinter {

class PromisedStorage : public Storage {
 public:
  // `keep` takes real memory, and gives the storage that is used instead from then on.
  PromisedStorage(int64_t bytes, std::function<Ref<Storage>()> keep);
  Ref<Storage> kept() const { return keep_(); }

 private:
  std::function<Ref<Storage>()> keep_;
};

inline const PromisedStorage* as_promise(const Ref<Storage>& s) {
  return dynamic_cast<const PromisedStorage*>(s.get());
}

}  // namespace sinter
