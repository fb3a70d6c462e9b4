// Where ranks meet: a few keys with values, kept by rank 0 and asked for over TCP.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/environment.h"

namespace sinter::dist {

// Note [Secret]: the store is bound to the one address that was asked for, and answers nobody who does not send the
// job's name and secret first. The secret comes in SINTER_SECRET, which launch makes, or reads from stdin, and hands to
// its ranks, never on a command line. Without one only loopback is served. It keeps out strangers and other jobs, not a
// wiretap.
class Store {
 public:
  // Rank 0 serves, on a thread of its own, and is its own first client; the others connect, and wait for it that long.
  // Ports in RankInfo::ports are tried in their order, by both sides: another program may hold the first ones.
  static std::unique_ptr<Store> join(const RankInfo& me, double timeout_s);
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until somebody has set it; throws ErrorKind::peer after `timeout_s`, or when rank 0 has gone.
  virtual std::string get(const std::string& key, double timeout_s) = 0;
  // The same, but nothing if nobody has set it by then.
  virtual std::optional<std::string> try_get(const std::string& key, double timeout_s = 0) = 0;
  virtual int64_t add(const std::string& key, int64_t n) = 0;  // a number, 0 at first; what it is now
};

}  // namespace sinter::dist
