// Where ranks that are threads of one test meet.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>

#include "core/check.h"
#include "dist/store.h"

namespace sinter {

class MemoryStore : public dist::Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, double timeout_s) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return values_.count(key) > 0; })) {
      fail_with(ErrorKind::peer, "nobody set {} within {} s", key, timeout_s);
    }
    return values_[key];
  }
  std::optional<std::string> try_get(const std::string& key, double timeout_s) override {
    std::unique_lock lock(mutex_);
    bool set =
        changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return values_.count(key) > 0; });
    return set ? std::optional(values_[key]) : std::nullopt;
  }
  int64_t add(const std::string& key, int64_t n) override {
    const std::lock_guard lock(mutex_);
    return numbers_[key] += n;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> numbers_;
};

}  // namespace sinter
