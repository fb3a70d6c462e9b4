// Ranks on any hosts, over TCP, by gloo. No other file includes gloo's headers.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <thread>
#include <unistd.h>

#include "core/check.h"
#include "dist/group.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

constexpr int64_t piece_bytes = 1 << 20;  // what is added at once: it stays in the cache
// gloo's own collectives use slots far above these.
constexpr uint64_t parts_slot = 1, sums_slot = 2;
constexpr uint32_t compare_tag = 1;

class GlooStore : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(const GroupSetting& setting) : setting_(setting) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    setting_.store->set(full(key), std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = setting_.store->get(full(key), setting_.timeout_s);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) setting_.store->get(full(key), setting_.timeout_s);
  }

 private:
  std::string full(const std::string& key) const { return setting_.key + "/gloo/" + key; }
  const GroupSetting& setting_;
};

// This host's address as `host` sees it. The host's own name would not do: it often means 127.0.1.1.
std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;  // whose connect() sends nothing
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), "9", &hints, &found);
  check(failed == 0, "the ranks' address {} is unknown here ({}); give one that every host can resolve", host,
        gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage mine = {};
    socklen_t length = sizeof(mine);
    auto* const any = reinterpret_cast<sockaddr*>(&mine);
    char name[NI_MAXHOST];
    const bool known = connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, any, &length) == 0 &&
                       getnameinfo(any, length, name, sizeof(name), nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (known) return name;
  }
  fail_with(ErrorKind::peer, "this host has no route to the ranks' address {}", host);
}

class GlooGroup final : public Group {
 public:
  explicit GlooGroup(GroupSetting given) : Group(std::move(given)) {
    if (size() == 1) return;
    // gloo writes to sockets that a dead peer has closed. An error is wanted then, not the end of the process.
    struct sigaction pipe = {};
    if (sigaction(SIGPIPE, nullptr, &pipe) == 0 && pipe.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
    try {
      gloo::transport::tcp::attr where;
      where.hostname = address_towards(setting().address);
      auto device = gloo::transport::tcp::CreateDevice(where);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
      context->setTimeout(std::chrono::milliseconds(std::max<int64_t>(1, int64_t(setting().timeout_s * 1e3))));
      GlooStore store(setting());
      context->connectFullMesh(store, device);
      context_ = std::move(context);
    } catch (const gloo::Exception& e) {
      cannot_connect(e);
    } catch (const gloo::EnforceNotMet& e) {
      cannot_connect(e);
    }
  }

  ~GlooGroup() override { drain_communication(DeviceType::cpu); }
  const char* name() const override { return "gloo"; }

 protected:
  void do_run(const Collective& what, const void* in, void* out, void*) override {
    const bool adds = what.kind == CollectiveKind::all_reduce || what.kind == CollectiveKind::reduce_scatter;
    check(!adds || is_float(what.dtype), "{} of {}; only floats are added", name_of(what.kind), name_of(what.dtype));
    if (size() == 1) {
      if (what.kind != CollectiveKind::barrier && in != out) std::memmove(out, in, size_t(what.bytes()));
      return;
    }
    if (what.elements == 0 && what.kind != CollectiveKind::barrier) return;
    guard([&] {
      auto* const from = static_cast<char*>(const_cast<void*>(in));  // gloo has no const
      auto* const to = static_cast<char*>(out);
      switch (what.kind) {
        case CollectiveKind::all_reduce:
          setting().deterministic ? add_shares(what, from, to, true) : all_reduce(what, from, to);
          break;
        case CollectiveKind::reduce_scatter: add_shares(what, from, to, false); break;
        case CollectiveKind::all_gather: all_gather(from, to, what.bytes(), 0); break;
        case CollectiveKind::broadcast: broadcast(what, from, to); break;
        case CollectiveKind::barrier: {
          gloo::BarrierOptions options(context_);
          gloo::barrier(options);
        }
      }
    });
  }

  void compare(const Collective& what) override {
    if (size() == 1) return;
    guard([&] {
      struct Announced {
        Collective what;
        int64_t sequence;
      };
      Announced mine = {what, sequence()};
      std::vector<Announced> all(size_t(size()), Announced{});
      const int64_t bytes = int64_t(sizeof(Announced)) * size();
      all_gather(reinterpret_cast<char*>(&mine), reinterpret_cast<char*>(all.data()), bytes, compare_tag);
      std::vector<Collective> by_rank;
      bool same = true;
      for (const Announced& a : all) {
        by_rank.push_back(a.what);
        same = same && a.what == what && a.sequence == mine.sequence;
      }
      if (!same) mismatch(by_rank);
    });
  }

 private:
  // Connections are of no use after a failure: what failed once fails again, at once and with the same words.
  template <class F> void guard(F&& work) {
    if (!failure_.empty()) throw Error(ErrorKind::peer, failure_);
    try {
      try {
        work();
      } catch (const gloo::Exception& e) {
        explain(e.what());
      } catch (const gloo::EnforceNotMet& e) {
        explain(e.what());
      }
    } catch (const Error& e) {
      failure_ = e.what();
      throw;
    }
  }

  [[noreturn]] void explain(const std::string& message) {
    context_->closeConnections();  // those who wait for this rank, and not for the one that has gone, learn of it
    if (message.find("imed out") != std::string::npos || message.find("imeout") != std::string::npos) time_out();
    // A connection is closed a little before its process has ended.
    for (int i = 0; setting().host && i < 50; i++) {
      if (const std::vector<int> gone = ended(); !gone.empty()) died(gone.front());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    fail_with(ErrorKind::peer, "rank {}: gloo lost another rank: {}", setting().ranks[size_t(rank())], message);
  }

  [[noreturn]] void cannot_connect(const std::exception& e) {
    fail_with(ErrorKind::peer,
              "rank {}: gloo could not connect {} ranks within {} s; all hosts must reach each other: {}",
              setting().ranks[size_t(rank())], size(), setting().timeout_s, e.what());
  }

  Buffer buffer(void* p, int64_t bytes) { return context_->createUnboundBuffer(p, size_t(bytes)); }

  void all_reduce(const Collective& what, char* in, char* out) {
    gloo::AllreduceOptions options(context_);
    auto set = [&]<class T>(T*) {  // gloo looks at the size of T alone
      if (in != out) options.setInput<T>(buffer(in, what.bytes()));
      options.setOutput<T>(buffer(out, what.bytes()));
    };
    switch (size_of(what.dtype)) {
      case 2: set((uint16_t*)nullptr); break;
      case 4: set((uint32_t*)nullptr); break;
      default: set((uint64_t*)nullptr); break;
    }
    options.setReduceFunction([&](void* sum, const void* a, const void* b, size_t n) {
      if (what.dtype == DType::f32) {
        add_two(static_cast<float*>(sum), static_cast<const float*>(a), static_cast<const float*>(b), n);
      } else {
        add_in_order(what.dtype, {a, b}, {sum}, int64_t(n), 1);
      }
    });
    gloo::allreduce(options);
    if (what.reduce == ReduceKind::average) add_in_order(what.dtype, {out}, {out}, what.elements, 1.0 / size());
  }

  // Each rank gets all ranks' numbers of its share, adds them in the order of ranks and, in an all_reduce, sends the
  // sum to all. Piece by piece: one arrives while the one before is added.
  void add_shares(const Collective& what, char* in, char* out, bool all) {
    const int n = size(), me = rank();
    const int64_t width = size_of(what.dtype), piece = piece_bytes / width;
    struct Range {
      int64_t at, bytes;
    };
    auto begin = [&](int r) { return what.elements / n * r + std::min<int64_t>(r, what.elements % n); };
    auto range = [&](int r, int64_t k) -> Range {
      const int64_t first = std::min(begin(r) + k * piece, begin(r + 1));
      return {first * width, (std::min(first + piece, begin(r + 1)) - first) * width};
    };
    const int64_t pieces = (begin(1) + piece - 1) / piece;  // the first share is the largest

    std::unique_ptr<char[]> memory(new char[size_t(2 * n * piece_bytes)]);
    char* const parts[] = {memory.get(), memory.get() + n * piece_bytes};
    const std::array<Buffer, 2> arriving = {buffer(parts[0], n * piece_bytes), buffer(parts[1], n * piece_bytes)};
    const Buffer source = buffer(in, what.bytes());
    const Buffer result = all ? buffer(out, what.bytes()) : nullptr;
    int64_t sent = 0, sums_sent = 0, sums_due = 0;

    auto exchange = [&](int64_t k) {
      for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = (me + n - i) % n;
        const Range theirs = range(to, k), mine = range(me, k);
        if (mine.bytes) arriving[size_t(k % 2)]->recv(from, parts_slot, size_t(from * piece_bytes), size_t(mine.bytes));
        if (theirs.bytes) {
          source->send(to, parts_slot, size_t(theirs.at), size_t(theirs.bytes));
          sent++;
        }
      }
    };
    auto add = [&](int64_t k) {
      const Range mine = range(me, k);
      if (mine.bytes) {
        std::vector<const void*> summands;
        for (int r = 0; r < n; r++) {
          if (r != me) arriving[size_t(k % 2)]->waitRecv();
          summands.push_back(r == me ? in + mine.at : parts[k % 2] + r * piece_bytes);
        }
        add_in_order(what.dtype, summands, {out + mine.at - (all ? 0 : begin(me) * width)}, mine.bytes / width,
                     what.reduce == ReduceKind::average ? 1.0 / n : 1.0);
      }
      for (int i = 1; all && i < n; i++) {
        const int to = (me + i) % n, from = (me + n - i) % n;
        if (const Range theirs = range(from, k); theirs.bytes) {
          // It can only come after they have got their part of `in`, so that the two may be the same place.
          result->recv(from, sums_slot, size_t(theirs.at), size_t(theirs.bytes));
          sums_due++;
        }
        if (mine.bytes) {
          result->send(to, sums_slot, size_t(mine.at), size_t(mine.bytes));
          sums_sent++;
        }
      }
    };
    exchange(0);
    for (int64_t k = 0; k < pieces; k++) {
      if (k + 1 < pieces) exchange(k + 1);
      add(k);
    }
    for (; sent; sent--) source->waitSend();
    for (; sums_sent; sums_sent--) result->waitSend();
    for (; sums_due; sums_due--) result->waitRecv();
  }

  void all_gather(char* in, char* out, int64_t bytes, uint32_t tag) {
    const int64_t share = bytes / size();
    gloo::AllgatherOptions options(context_);
    if (in != out + share * rank()) options.setInput<char>(buffer(in, share));
    options.setOutput<char>(buffer(out, bytes));
    options.setTag(tag);
    gloo::allgather(options);
  }

  void broadcast(const Collective& what, char* in, char* out) {
    gloo::BroadcastOptions options(context_);
    if (rank() == what.root && in != out) options.setInput<char>(buffer(in, what.bytes()));
    options.setOutput<char>(buffer(out, what.bytes()));
    options.setRoot(what.root);
    gloo::broadcast(options);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::string failure_;
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<ProcessGroup> make_gloo_group(GroupSetting setting) {
  return std::make_unique<GlooGroup>(std::move(setting));
}

}  // namespace sinter::dist
