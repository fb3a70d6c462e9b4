#include "profile/range.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "core/error.h"

namespace sinter {
namespace {

constexpr int max_depth = 32;  // deeper ranges count but are not named
thread_local const char* names[max_depth];
thread_local int depth = 0;

const char* intern(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> all;
  std::lock_guard lock(mutex);
  return all.insert(name).first->c_str();
}

void enter(const char* name) {
  if (depth < max_depth) names[depth] = name;
  ++depth;
}

}  // namespace

Range::Range(const char* name) { enter(name); }
Range::Range(const std::string& name) { enter(intern(name)); }
Range::~Range() { --depth; }

std::string Range::path() {
  std::string p;
  for (int i = 0; i < std::min(depth, max_depth); ++i) p += (i ? "/" : "") + std::string(names[i]);
  return p;
}

void fail(ErrorKind kind, const std::string& message) {
  std::string where = Range::path();
  throw Error(kind, where.empty() ? message : message + " (in " + where + ")");
}

}  // namespace sinter
