#include "dist/host_memory.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "ops/context.h"
#include "system/host.h"

namespace sinter::dist {
namespace {

constexpr size_t common_bytes = size_t(4) << 20, granule = size_t(2) << 20;
constexpr size_t most_bytes = size_t(1) << 44;  // of all heaps: address space has its end

size_t rounded(size_t n) { return (n + granule - 1) / granule * granule; }

[[noreturn]] void fail_system(const char* what) {
  fail_with(ErrorKind::peer, "ranks of this host cannot share memory: {}: {}", what, std::strerror(errno));
}

struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int release() { return std::exchange(fd, -1); }
};

std::string random_name() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail_system("getrandom");
  std::string name = "sinter-";
  for (unsigned char b : bytes) name += fmt::format("{:02x}", b);
  return name;
}

// In the abstract name space: no file is made, and the name goes with the process.
socklen_t unix_address(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool wait_readable(int fd, double seconds) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, int(1e3 * std::max(0.0, seconds))) > 0;
}

// One byte, and room for a descriptor beside it.
struct Message {
  char byte = 0;
  iovec io{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{nullptr, 0, &io, 1, space, sizeof space, 0};
};

void send_descriptor(int socket, int fd) {
  Message message;
  cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &message.header, MSG_NOSIGNAL) < 0) fail_system("sendmsg");
}

int receive_descriptor(int socket) {
  Message message;
  if (recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) < 0) fail_system("recvmsg");
  cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  check(header && header->cmsg_type == SCM_RIGHTS, "the first rank of this host passed no memory");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

size_t size_of_file(int fd) {
  struct stat s {};
  if (fstat(fd, &s) < 0) fail_system("fstat");
  return size_t(s.st_size);
}

bool is_ours(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Makes the memory and gives it to the others.
int make_and_pass(size_t bytes, size_t others, Store& store, const std::string& key, double timeout_s) {
  Descriptor memory(memfd_create("sinter", MFD_CLOEXEC));
  if (memory.fd < 0 || ftruncate(memory.fd, off_t(bytes)) < 0) fail_system("memfd_create");
  if (others == 0) return memory.release();
  Descriptor server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string name = random_name();
  sockaddr_un address;
  socklen_t size = unix_address(address, name);
  if (server.fd < 0 || bind(server.fd, reinterpret_cast<sockaddr*>(&address), size) < 0 ||
      listen(server.fd, int(others)) < 0)
    fail_system("a Unix socket");
  store.set(key + "/socket", name);
  int64_t begin = steady_ns();
  for (size_t served = 0; served < others;) {
    double left = timeout_s - double(steady_ns() - begin) / 1e9;
    if (!wait_readable(server.fd, left))
      fail_with(ErrorKind::peer, "only {} of {} ranks of this host came to share memory within {:.0f} s", served + 1,
                others + 1, timeout_s);
    Descriptor peer(accept4(server.fd, nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.fd < 0 || !is_ours(peer.fd)) continue;
    send_descriptor(peer.fd, memory.fd);
    ++served;
  }
  return memory.release();
}

int receive(Store& store, const std::string& key, double timeout_s) {
  std::string name = store.get(key + "/socket", timeout_s);
  Descriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  socklen_t size = unix_address(address, name);
  if (client.fd < 0 || connect(client.fd, reinterpret_cast<sockaddr*>(&address), size) < 0)
    fail_system("connecting to the first rank of this host");
  if (!wait_readable(client.fd, timeout_s)) fail_system("waiting for the first rank of this host");
  return receive_descriptor(client.fd);
}

}  // namespace

// What all ranks of the host see: their statuses, what groups share, and then a heap for each rank.
class HostMemory::Map {
 public:
  // The heaps' size is what the first rank saw fit.
  Map(int fd, size_t ranks, size_t mine)
      : fd_(fd),
        bytes_(size_of_file(fd)),
        heap_bytes_((bytes_ - begin_of_heaps(ranks)) / ranks),
        heap_begin_(begin_of_heaps(ranks) + mine * heap_bytes_) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) {
      close(fd_);
      fail_system("mmap (is address space limited by ulimit -v?)");
    }
    base = static_cast<char*>(p);
    madvise(base + heap_begin_, heap_bytes_, MADV_HUGEPAGE);  // may be refused
    free_[heap_begin_] = heap_bytes_;
  }
  ~Map() {
    munmap(base, bytes_);
    close(fd_);
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  static size_t begin_of_heaps(size_t ranks) { return rounded(ranks * sizeof(RankStatus) + common_bytes); }
  static size_t total_bytes(size_t ranks) {
    return begin_of_heaps(ranks) + ranks * rounded(std::min(size_t(host_memory_bytes()), most_bytes / ranks));
  }

  int64_t offset_of(const void* p, size_t bytes) const {
    int64_t at = static_cast<const char*>(p) - base;
    bool inside = at >= int64_t(heap_begin_) && at + int64_t(bytes) <= int64_t(heap_begin_ + heap_bytes_);
    return inside ? at : -1;
  }
  RankStatus& status(size_t i) const { return reinterpret_cast<RankStatus*>(base)[i]; }

  void* allocate(size_t bytes) {
    if (int64_t(bytes) > host_free_bytes()) return nullptr;
    std::lock_guard lock(mutex_);
    bytes = rounded(std::max<size_t>(bytes, 1));
    for (auto& [at, size] : free_) {
      if (size < bytes) continue;
      size_t begin = at, rest = size - bytes;
      free_.erase(begin);
      if (rest) free_[begin + bytes] = rest;
      used_[begin] = bytes;
      return base + begin;
    }
    return nullptr;
  }
  void free(void* p) {
    std::lock_guard lock(mutex_);
    auto it = used_.find(size_t(static_cast<char*>(p) - base));
    auto [begin, bytes] = *it;
    used_.erase(it);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(begin), off_t(bytes));
    auto next = free_.emplace(begin, bytes).first;
    if (auto after = std::next(next); after != free_.end() && next->first + next->second == after->first)
      next->second += after->second, free_.erase(after);
    if (next != free_.begin())
      if (auto before = std::prev(next); before->first + before->second == next->first)
        before->second += next->second, free_.erase(next);
  }

  char* base = nullptr;
  size_t taken = 0;  // of what groups share

 private:
  int fd_;
  size_t bytes_, heap_bytes_, heap_begin_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_, used_;  // offset -> bytes
};

HostMemory::HostMemory(const std::vector<int>& ranks, int my_rank, Store& store, const std::string& key,
                       double timeout_s)
    : ranks_(ranks), rank_(my_rank) {
  auto mine = std::find(ranks.begin(), ranks.end(), my_rank);
  check(mine != ranks.end(), "rank {} is not among those of its host", my_rank);
  size_t n = ranks.size();
  int fd = my_rank == ranks[0] ? make_and_pass(Map::total_bytes(n), n - 1, store, key, timeout_s)
                               : receive(store, key, timeout_s);
  map_ = std::make_shared<Map>(fd, n, size_t(mine - ranks.begin()));
  map_->taken = n * sizeof(RankStatus);
  this->mine().pid.store(getpid());
  int64_t begin = steady_ns();
  for (int rank : ranks_) {
    while (status_of(rank)->pid.load() == 0) {
      if (double(steady_ns() - begin) / 1e9 > timeout_s)
        fail_with(ErrorKind::peer, "rank {} of this host did not begin to share memory within {:.0f} s", rank,
                  timeout_s);
      usleep(200);
    }
    pidfds_.push_back(int(syscall(SYS_pidfd_open, status_of(rank)->pid.load(), 0)));
  }
}

HostMemory::~HostMemory() {
  for (int fd : pidfds_)
    if (fd >= 0) close(fd);
}

RankStatus* HostMemory::status_of(int world_rank) const {
  auto it = std::find(ranks_.begin(), ranks_.end(), world_rank);
  return it == ranks_.end() ? nullptr : &map_->status(size_t(it - ranks_.begin()));
}

// A process's descriptor becomes readable when it ends, also before its parent has asked how.
bool HostMemory::has_ended(int world_rank) const {
  auto it = std::find(ranks_.begin(), ranks_.end(), world_rank);
  if (it == ranks_.end() || world_rank == rank_) return false;
  int fd = pidfds_[size_t(it - ranks_.begin())];
  if (fd >= 0) return wait_readable(fd, 0);
  return kill(status_of(world_rank)->pid.load(), 0) < 0 && errno == ESRCH;
}

std::vector<int> HostMemory::ended() const {
  std::vector<int> all;
  for (int rank : ranks_)
    if (has_ended(rank)) all.push_back(rank);
  return all;
}

void* HostMemory::allocate(size_t bytes) { return map_->allocate(bytes); }
void HostMemory::free(void* p) { map_->free(p); }

void* HostMemory::pool() {
  void* key = map_.get();
  auto nothing = [] {};
  allocator_of(DeviceType::cpu)
      .add_pool(key, {[map = map_](size_t n) { return map->allocate(n); },
                      [map = map_](void* p) { map->free(p); },
                      [] { return host_free_bytes(); },
                      nothing,
                      {}});
  return key;
}

int64_t HostMemory::offset_of(const void* p, size_t bytes) const { return map_->offset_of(p, bytes); }
void* HostMemory::at(int64_t offset) const { return map_->base + offset; }

std::span<char> HostMemory::common_memory() const { return {map_->base, Map::begin_of_heaps(ranks_.size())}; }

void* HostMemory::common(size_t bytes) {
  constexpr size_t alignment = 128;
  size_t at = (map_->taken + alignment - 1) / alignment * alignment;
  check(at + bytes <= common_bytes, "too many groups of ranks were made in one process");
  map_->taken = at + bytes;
  return map_->base + at;
}

}  // namespace sinter::dist
