#include "dist/store.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cmath>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/check.h"
#include "dist/store_messages.h"
#include "dist/store_server.h"

namespace sinter::dist {
namespace {

using namespace store;

constexpr double bind_s = 3;     // that rank 0 waits for a port: the last job may be about to give it back
constexpr double answer_s = 10;  // that rank 0 has for what needs no waiting; then it is stuck
constexpr double slack_s = 1;    // that an answer may be late

// ---- Addresses ----

struct Place {
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* at() { return reinterpret_cast<sockaddr*>(&address); }
  const sockaddr* at() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string text_of(const Place& place) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(place.at(), place.size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  bool colons = place.address.ss_family == AF_INET6;
  return colons ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool is_loopback(const Place& place) {
  if (place.address.ss_family == AF_INET) {
    auto& v4 = reinterpret_cast<const sockaddr_in&>(place.address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  auto& v6 = reinterpret_cast<const sockaddr_in6&>(place.address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// Where the store may be, in the order to try.
std::vector<Place> places_of(const RankInfo& me) {
  check(!me.ports.empty(), "no port is known where ranks could meet; set MASTER_PORT to a free one, the same for all");
  std::vector<Place> places;
  for (int port : me.ports) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    int error = getaddrinfo(me.address.c_str(), std::to_string(port).c_str(), &hints, &found);
    check(error == 0, "MASTER_ADDR={}: {}; set it to the name or the address of rank 0's host", me.address,
          gai_strerror(error));
    for (addrinfo* a = found; a; a = a->ai_next) {
      Place& place = places.emplace_back();
      std::memcpy(&place.address, a->ai_addr, a->ai_addrlen);
      place.size = a->ai_addrlen;
    }
    freeaddrinfo(found);
  }
  for (const Place& place : places)
    check(
        is_loopback(place) || !me.secret.empty(),
        "MASTER_ADDR={} ({}) can be reached by others, and SINTER_SECRET is not set; set it to a long random text, the "
        "same for all ranks, or start them with sinter launch",
        me.address, text_of(place));
  return places;
}

// Listens at the first place that can be had, and says in `place` which that is.
Socket listen_at_one_of(const std::vector<Place>& places, const RankInfo& me, double timeout_s, Place& place) {
  int64_t deadline = in_seconds(std::min(timeout_s, bind_s));
  for (;;) {
    int error = 0;
    for (const Place& p : places) {
      Socket s(socket(p.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int yes = 1;
      place = p;
      if (s && setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
          bind(s.fd(), p.at(), p.size) == 0 && listen(s.fd(), SOMAXCONN) == 0 &&
          getsockname(s.fd(), place.at(), &place.size) == 0)
        return s;
      if (error != EADDRINUSE) error = errno;  // of several reasons the one that may pass
    }
    check(error != EADDRNOTAVAIL,
          "MASTER_ADDR={} is no address of this host, where rank 0 runs; set it to one, the same for all ranks",
          me.address);
    check(error == EADDRINUSE && steady_ns() < deadline,
          "rank 0 cannot listen at {} ({}{}); set MASTER_PORT (sinter launch: --master-port) to a free port, the same "
          "for all ranks",
          text_of(places[0]), places.size() > 1 ? fmt::format("nor at {} others: ", places.size() - 1) : "",
          std::strerror(error));
    sleep_s(0.05);
  }
}

// ---- The client ----

enum class Outcome { done, closed, late };

// Waits until the socket is ready, then does it, until all of `n` bytes are through.
template <class Do> Outcome transfer(int fd, short event, size_t n, int64_t deadline, const Do& act) {
  for (size_t through = 0; through < n;) {
    ssize_t now = act(through);
    if (now > 0) through += size_t(now);
    else if (now == 0 || (errno != EAGAIN && errno != EINTR)) return Outcome::closed;
    else if (steady_ns() >= deadline) return Outcome::late;
    else if (errno == EAGAIN) {
      pollfd p{fd, event, 0};
      poll(&p, 1, ms_until(deadline));
    }
  }
  return Outcome::done;
}

Outcome send_to(const Socket& s, const std::string& bytes, int64_t deadline) {
  return transfer(s.fd(), POLLOUT, bytes.size(), deadline,
                  [&](size_t done) { return send(s.fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL); });
}

Outcome receive_from(const Socket& s, std::string& bytes, size_t largest, int64_t deadline) {
  auto fill = [&](size_t size) {
    bytes.assign(size, '\0');
    return transfer(s.fd(), POLLIN, size, deadline,
                    [&](size_t done) { return recv(s.fd(), bytes.data() + done, size - done, 0); });
  };
  if (Outcome o = fill(sizeof(uint32_t)); o != Outcome::done) return o;
  size_t size = sealed_size(bytes);
  return size <= largest ? fill(size) : Outcome::closed;
}

// Linux may connect one who asks for a port that nobody listens at with itself.
bool is_self(const Socket& s) {
  Place a, b;
  return getsockname(s.fd(), a.at(), &a.size) == 0 && getpeername(s.fd(), b.at(), &b.size) == 0 && a.size == b.size &&
         std::memcmp(&a.address, &b.address, a.size) == 0;
}

// A connection to this job's store; or none, and `why`.
Socket connect_to(const Place& place, const RankInfo& me, int64_t deadline, std::string& why) {
  Socket s(socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = s && connect(s.fd(), place.at(), place.size) == 0 ? 0 : errno;
  if (s && error == EINPROGRESS) {
    pollfd p{s.fd(), POLLOUT, 0};
    socklen_t size = sizeof error;
    if (poll(&p, 1, ms_until(deadline)) <= 0) error = ETIMEDOUT;
    else getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) {
    why = std::strerror(error);
    return {};
  }
  if (is_self(s)) {
    linger at_once{1, 0};  // rank 0 wants that port
    setsockopt(s.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    why = std::strerror(ECONNREFUSED);
    return {};
  }
  int yes = 1;
  setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  std::string hello = Message().put(magic).put(me.job).put(me.secret).sealed(), bytes;
  Outcome o = send_to(s, hello, deadline);
  if (o == Outcome::done) o = receive_from(s, bytes, largest_welcome, deadline);
  Answer answer = Answer::timed_out;
  if (o == Outcome::done) {
    Reader message(bytes);
    answer = Answer(message.number());
    message.text();
    if (!message.valid()) answer = Answer::timed_out;
  }
  if (answer == Answer::welcome) return s;
  why = o == Outcome::late            ? "no answer"
        : answer == Answer::other_job ? "it belongs to another job"
                                      : "refused: another program, or another SINTER_SECRET";
  return {};
}

class TcpStore final : public Store {
 public:
  TcpStore(const RankInfo& me, double timeout_s) : me_(me) {
    check(magic.size() + me_.job.size() + me_.secret.size() < largest_hello - 64,
          "SINTER_SECRET and the job's name have {} bytes, which is too long; shorten the secret",
          me_.job.size() + me_.secret.size());
    if (me_.size == 1) me_.address = "127.0.0.1", me_.ports = {0};  // nobody else has to find it
    std::vector<Place> places = places_of(me_);
    if (me_.rank == 0) {
      Socket listening = listen_at_one_of(places, me_, timeout_s, place_);
      server_ = std::make_unique<Server>(std::move(listening), me_);
      places = {place_};
    }
    find(places, timeout_s);
  }
  ~TcpStore() override {
    idle_.clear();  // the server waits for clients to go
    server_.reset();
  }

  void set(const std::string& key, const std::string& value) override {
    expect_done(key, ask(key, Message().put(int64_t(Op::set)).put(key).put(value), answer_s));
  }

  std::string get(const std::string& key, double timeout_s) override {
    Reply r = ask_for(key, timeout_s);
    if (r.kind == Answer::timed_out)
      fail_with(ErrorKind::peer,
                "no rank has told rank {} what '{}' is in {:g} s; see what the others say, or wait longer", me_.rank,
                key, timeout_s);
    expect_done(key, r);
    return r.value;
  }

  std::optional<std::string> try_get(const std::string& key, double timeout_s) override {
    Reply r = ask_for(key, timeout_s);
    if (r.kind == Answer::timed_out) return {};
    expect_done(key, r);
    return r.value;
  }

  int64_t add(const std::string& key, int64_t n) override {
    Reply r = ask(key, Message().put(int64_t(Op::add)).put(key).put(n), answer_s);
    expect_done(key, r);
    return std::stoll(r.value);
  }

 private:
  struct Reply {
    Answer kind;
    std::string value;
  };

  Reply ask_for(const std::string& key, double timeout_s) {
    auto ms = int64_t(std::ceil(1e3 * std::clamp(timeout_s, 0.0, 1e8)));
    return ask(key, Message().put(int64_t(Op::get)).put(key).put(ms), ms > 0 ? timeout_s + slack_s : answer_s);
  }

  // Connects to the first place that is this job's store.
  void find(const std::vector<Place>& places, double timeout_s) {
    int64_t begin = steady_ns(), deadline = in_seconds(timeout_s);
    std::vector<std::string> why(places.size());
    // A stranger may hold the line: at first not for long, then longer, for rank 0 itself may be slow.
    for (double patience = 0.25;; patience = std::min(2 * patience, 4.0)) {
      for (size_t i = 0; i < places.size(); ++i) {
        std::string reason;
        Socket s = connect_to(places[i], me_, std::min(deadline, in_seconds(patience)), reason);
        if (why[i].empty() || steady_ns() < deadline) why[i] = reason;  // the last try is cut short
        if (!s) continue;
        place_ = places[i];
        idle_.push_back(std::move(s));
        return;
      }
      if (steady_ns() >= deadline) break;
      sleep_s(std::min(0.02, double(deadline - steady_ns()) / 1e9));
    }
    std::string tried;
    for (size_t i = 0; i < places.size(); ++i)
      if (i == 0 || why[i] != why[i - 1]) tried += fmt::format("{}{}: {}", i ? "; " : "", text_of(places[i]), why[i]);
    fail_with(ErrorKind::peer,
              "rank {} has not found rank 0 in {:.1f} s ({}); see whether rank 0 runs, and whether MASTER_ADDR, "
              "MASTER_PORT and SINTER_SECRET are the same for all ranks",
              me_.rank, double(steady_ns() - begin) / 1e9, tried);
  }

  // Every call that waits has a connection to itself, so that no thread waits for another's answer.
  Reply ask(const std::string& key, const Message& message, double timeout_s) {
    check(message.size() <= largest_message, "'{}' and its value have {} bytes, and the store takes {}; send less", key,
          message.size(), largest_message);
    int64_t deadline = in_seconds(timeout_s);
    Socket s;
    if (std::lock_guard lock(mutex_); !idle_.empty()) s = std::move(idle_.back()), idle_.pop_back();
    std::string bytes, why;
    if (!s && !(s = connect_to(place_, me_, deadline, why))) lost(key, why);
    Outcome o = send_to(s, message.sealed(), deadline);
    if (o == Outcome::done) o = receive_from(s, bytes, largest_message + 64, deadline);
    if (o == Outcome::late) lost(key, fmt::format("no answer in {:g} s", timeout_s));
    if (o == Outcome::closed) lost(key, "the connection is closed");
    Reader answer(bytes);
    Reply r{Answer(answer.number()), std::string(answer.text())};
    if (!answer.valid()) lost(key, "it answers nonsense");
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(s));
    return r;
  }

  [[noreturn]] void lost(const std::string& key, const std::string& why) const {
    fail_with(ErrorKind::peer, "rank {} has lost rank 0 at {} while it asked for '{}': {}; see what rank 0 said last",
              me_.rank, text_of(place_), key, why);
  }

  void expect_done(const std::string& key, const Reply& r) const {
    check(r.kind != Answer::not_a_number, "'{}' was set to what is no number; count under another key", key);
    if (r.kind != Answer::done) lost(key, "it answers nonsense");
  }

  RankInfo me_;
  std::unique_ptr<Server> server_;  // rank 0's
  Place place_;
  std::mutex mutex_;
  std::vector<Socket> idle_;
};

}  // namespace

std::unique_ptr<Store> Store::join(const RankInfo& me, double timeout_s) {
  return std::make_unique<TcpStore>(me, timeout_s);
}

}  // namespace sinter::dist
