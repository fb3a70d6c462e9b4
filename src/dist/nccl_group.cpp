// NVIDIA's NCCL, loaded when a group is made: between GPUs of a host and of several. Ranks that share a GPU work too,
// if each claims a host of its own (World does that before NCCL starts); they then talk through sockets, which says
// nothing about speed.
//
// NCCL never gives up by itself. Note [Watching] in device_group.h says who sees to that; here it is told to abort.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <thread>

#include "backend/device.h"
#include "core/check.h"
#include "core/clock.h"
#include "dist/device_group.h"
#include "ops/context.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

// Of nccl.h, whose values have been the same since NCCL 2.10: the build needs no NCCL.
using Comm = struct ncclComm*;
struct UniqueId {
  char bytes[128];
};
enum Result { success = 0, in_progress = 7 };
enum Operation { sum = 0, average = 4 };
enum Type { f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };

struct Library {
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(Comm*, int ranks, UniqueId, int rank);
  int (*all_reduce)(const void*, void*, size_t, int type, int operation, Comm, void* stream);
  int (*reduce_scatter)(const void*, void*, size_t, int type, int operation, Comm, void* stream);
  int (*all_gather)(const void*, void*, size_t, int type, Comm, void* stream);
  int (*broadcast)(const void*, void*, size_t, int type, int root, Comm, void* stream);
  int (*get_async_error)(Comm, int*);
  int (*abort)(Comm);
  int (*get_version)(int*);
  const char* (*get_error_string)(int);
  std::string missing;  // why it is
};

void load(Library& l) {
  std::vector<const char*> names = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
  if (const char* named = std::getenv("SINTER_NCCL")) names = {named};
  void* handle = nullptr;
  for (const char* name : names)
    if (!handle) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    l.missing =
        fmt::format("NCCL was not found ({}); install libnccl2, or name its libnccl.so.2 in SINTER_NCCL", dlerror());
    return;
  }
  auto find = [&](auto& f, const char* name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(handle, name));
    if (!f && l.missing.empty()) l.missing = fmt::format("the NCCL that was found has no {}; use 2.10 or newer", name);
  };
  find(l.get_unique_id, "ncclGetUniqueId");
  find(l.init_rank, "ncclCommInitRank");
  find(l.all_reduce, "ncclAllReduce");
  find(l.reduce_scatter, "ncclReduceScatter");
  find(l.all_gather, "ncclAllGather");
  find(l.broadcast, "ncclBroadcast");
  find(l.get_async_error, "ncclCommGetAsyncError");
  find(l.abort, "ncclCommAbort");
  find(l.get_version, "ncclGetVersion");
  find(l.get_error_string, "ncclGetErrorString");
}
const Library& library() {
  static const Library l = [] {
    Library made{};
    load(made);
    return made;
  }();
  return l;
}

void check_nccl(int result, const char* what) {
  if (result == success || result == in_progress) return;
  fail_with(ErrorKind::peer, "NCCL: {} failed: {} (NCCL_DEBUG=WARN says more)", what,
            library().get_error_string(result));
}

int type_of(DType t) {
  switch (t) {
    case DType::f32: return f32;
    case DType::f64: return f64;
    case DType::bf16: return bf16;
    case DType::f16: return f16;
    default: fail_with(ErrorKind::usage, "NCCL: a collective of {} numbers: only floats are communicated", name_of(t));
  }
}

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(GroupSetting s, std::unique_ptr<ProcessGroup> host) : DeviceGroup(std::move(s), std::move(host)) {
    join();
    barrier_ = backend_of(DeviceType::cuda).allocate(sizeof(float));
    watch();
  }
  ~NcclGroup() override {
    drain_communication(DeviceType::cuda);
    try {
      synchronize(DeviceType::cuda);
      // What goes over sockets may be under way after one's own part is done.
      if (has_host() && std::uncaught_exceptions() == 0) host().run({}, nullptr, nullptr, nullptr);
    } catch (const Error&) {  // of whoever computes
    }
    stop_watching();
    // Destroying waits for the others, which may be gone; nothing is under way any more.
    if (!aborted_) library().abort(comm_);
    backend_of(DeviceType::cuda).free(barrier_);
  }
  const char* name() const override { return "nccl"; }
  bool captures() const override { return setting().captures && !setting().check_collectives; }

 private:
  // NCCL waits for the other ranks without end, so it does that beside us.
  void join() {
    UniqueId id{};
    std::string key = setting().key + "/nccl";
    if (rank() == 0) {
      check_nccl(library().get_unique_id(&id), "ncclGetUniqueId");
      std::string hex;
      for (char c : id.bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      setting().store->set(key, hex);
    } else {
      std::string hex = setting().store->get(key, setting().timeout_s);
      for (size_t i = 0; i < sizeof id.bytes; ++i) id.bytes[i] = char(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    struct Joining {
      std::atomic<int> result{-1};
      Comm comm = nullptr;
    };
    auto joining = std::make_shared<Joining>();
    std::thread([joining, id, n = size(), r = rank()] {
      cuda_backend();
      Comm comm = nullptr;
      int result = library().init_rank(&comm, n, id, r);
      joining->comm = comm;
      joining->result = result;
    }).detach();
    for (int64_t begin = steady_ns(); joining->result == -1; usleep(500)) {
      if (std::vector<int> gone = ended(); !gone.empty()) died(gone[0]);
      if (double(steady_ns() - begin) / 1e9 > setting().timeout_s)
        fail_with(ErrorKind::peer,
                  "NCCL: the ranks did not find each other within {} s (--timeout); NCCL_DEBUG=INFO "
                  "says what it tries",
                  setting().timeout_s);
    }
    check_nccl(joining->result, "ncclCommInitRank");
    comm_ = joining->comm;
  }

  void enqueue(const Collective& what, const void* in, void* out, void* stream) override {
    if (setting().check_collectives && has_host()) compare_on_host(what);
    Collective c = what;
    progress_.begin(id_of(c), stream);
    int type = type_of(c.dtype), how = c.reduce == ReduceKind::average ? average : sum;
    auto whole = size_t(c.elements), share = whole / size_t(size());
    const Library& l = library();
    int result = success;
    switch (c.elements == 0 ? CollectiveKind::barrier : c.kind) {
      case CollectiveKind::all_reduce: result = l.all_reduce(in, out, whole, type, how, comm_, stream); break;
      case CollectiveKind::reduce_scatter: result = l.reduce_scatter(in, out, share, type, how, comm_, stream); break;
      case CollectiveKind::all_gather: result = l.all_gather(in, out, share, type, comm_, stream); break;
      case CollectiveKind::broadcast: result = l.broadcast(in, out, whole, type, c.root, comm_, stream); break;
      case CollectiveKind::barrier: result = l.all_reduce(barrier_, barrier_, 1, f32, sum, comm_, stream);
    }
    check_peers(result, name_of(c.kind));
    progress_.end(stream);
  }

  // NCCL hears of a closed connection before the kernel says that its process has ended.
  void check_peers(int result, const char* what) {
    if (result == success || result == in_progress) return;
    constexpr double patience_s = 1;
    for (int64_t begin = steady_ns(); double(steady_ns() - begin) / 1e9 < patience_s; usleep(1000))
      if (std::vector<int> gone = ended(); !gone.empty()) died(gone[0]);
    check_nccl(result, what);
  }

  void compare_on_host(const Collective& what) {
    std::vector<double> mine = {double(what.kind), double(what.reduce), double(what.dtype), double(what.root),
                                double(what.elements)};
    std::vector<double> all(mine.size() * size_t(size()));
    host().run({CollectiveKind::all_gather, ReduceKind::sum, DType::f64, 0, int64_t(all.size())}, mine.data(),
               all.data(), nullptr);
    std::vector<Collective> by_rank;
    bool same = true;
    for (size_t r = 0; r < size_t(size()); ++r) {
      const double* v = &all[r * mine.size()];
      by_rank.push_back({CollectiveKind(int(v[0])), ReduceKind(int(v[1])), DType(int(v[2])), int(v[3]), int64_t(v[4])});
      same = same && by_rank.back() == what;
    }
    if (!same) mismatch(by_rank);
  }

  cuda::DeviceProgress::Seen seen() const override { return progress_.seen(); }
  void look_beside() override {
    int error = success;
    if (!aborted_ && library().get_async_error(comm_, &error) == success) check_peers(error, "a collective");
  }
  // Aborting waits until no captured graph refers to the communicator, which may be never.
  void let_go() override {
    if (aborted_.exchange(true)) return;
    std::thread([comm = comm_] {
      cuda_backend();
      library().abort(comm);
    }).detach();
  }

  Comm comm_ = nullptr;
  void* barrier_ = nullptr;  // a number that is summed where nothing else is
  std::atomic<bool> aborted_{false};
  cuda::DeviceProgress progress_;
};

}  // namespace

std::string nccl_missing_reason() { return library().missing; }

std::unique_ptr<ProcessGroup> make_nccl_group(GroupSetting setting, std::unique_ptr<ProcessGroup> host) {
  check(cuda_backend() != nullptr, "--backend nccl: {}", cuda_missing_reason());
  check(nccl_missing_reason().empty(), "--backend nccl: {}", nccl_missing_reason());
  return std::make_unique<NcclGroup>(std::move(setting), std::move(host));
}

}  // namespace sinter::dist
