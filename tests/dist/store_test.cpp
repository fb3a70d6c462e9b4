// Where ranks meet: what they find there, who is kept out, and what happens when rank 0 goes.
#include "dist/store.h"

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

#include "core/clock.h"
#include "support/values.h"

namespace sinter::dist {
namespace {

constexpr double long_s = 30;  // for what should not take long, on a busy machine

// A socket at a port of loopback's that is its own until it goes.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    port_ = ntohs(at.sin_port);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  int fd() const { return fd_; }

 private:
  int fd_, port_ = 0;
};

int free_port() { return Listener().port(); }

RankInfo rank_info(int rank, int size, std::vector<int> ports) {
  RankInfo me;
  me.rank = me.local_rank = rank;
  me.size = me.local_size = size;
  me.ports = std::move(ports);
  me.job = "a job";
  me.secret = "a secret";
  return me;
}

// Rank 0 has several ports to choose from: others run on this machine too.
std::vector<int> free_ports() {
  Listener a, b, c;
  return {a.port(), b.port(), c.port()};
}

// A connection of somebody who is no rank.
class Stranger {
 public:
  explicit Stranger(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(uint16_t(port));
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  bool connected() const { return connected_; }
  void say(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  bool is_dropped() {  // and was not answered
    char byte;
    ssize_t n = recv(fd_, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }

 private:
  int fd_;
  bool connected_;
};

TEST(DistStore, KeepsWhatRanksSay) {
  constexpr int ranks = 4;
  std::vector<int> ports = free_ports();
  std::vector<std::thread> threads;
  std::atomic<int> last = 0;
  for (int rank = ranks - 1; rank >= 0; --rank)  // rank 0 comes last
    threads.emplace_back([&, rank] {
      std::unique_ptr<Store> store = Store::join(rank_info(rank, ranks, ports), long_s);
      std::string large(size_t(100000) * size_t(rank), char('a' + rank));
      store->set("from " + std::to_string(rank), large);
      for (int other = 0; other < ranks; ++other)
        EXPECT_EQ(store->get("from " + std::to_string(other), long_s),
                  std::string(size_t(100000) * size_t(other), char('a' + other)));
      for (int i = 0; i < 50; ++i) store->add("count", rank);
      if (store->add("here", 1) == ranks) {
        ++last;
        EXPECT_EQ(store->add("count", 0), 50 * (0 + 1 + 2 + 3));
        EXPECT_EQ(store->get("count", long_s), "300");
        store->set("all here", "");
      }
      EXPECT_EQ(store->get("all here", long_s), "");
      EXPECT_EQ(store->try_get("nothing"), std::nullopt);
      EXPECT_EQ(store->try_get("from 1"), std::string(100000, 'b'));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(last, 1);
}

TEST(DistStore, SetsAgainAndCounts) {
  std::unique_ptr<Store> store = Store::join(rank_info(0, 1, {}), long_s);
  store->set("", "empty key");
  EXPECT_EQ(store->get("", 0), "empty key");
  std::string binary("\0\n\xff", 3);
  store->set(binary, "old");
  store->set(binary, binary);
  EXPECT_EQ(store->try_get(binary), binary);
  EXPECT_EQ(store->add("n", 5), 5);
  EXPECT_EQ(store->add("n", -7), -2);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { store->add("", 1); }), {"no number", "another key"}));
  std::string huge(size_t(65) << 20, 'x');
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { store->set("huge", huge); }), {"huge", "send less"}));
  EXPECT_EQ(store->add("n", 0), -2) << "it goes on";
}

TEST(DistStore, IsUsableAfterAGetTimedOut) {
  std::unique_ptr<Store> store = Store::join(rank_info(0, 1, {}), long_s);
  std::string text = error_of(ErrorKind::peer, [&] { store->get("nobody sets this", 0.02); });
  EXPECT_TRUE(mentions(text, {"nobody sets this", "rank 0", "0.02 s"})) << text;
  store->set("a", "b");
  EXPECT_EQ(store->get("a", long_s), "b");
  EXPECT_EQ(store->try_get("nobody sets this"), std::nullopt);
}

TEST(DistStore, LetsOtherThreadsWorkWhileOneWaits) {
  std::unique_ptr<Store> store = Store::join(rank_info(0, 1, {}), long_s);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) waiting.emplace_back([&] { EXPECT_EQ(store->get("late", long_s), "here"); });
  for (int i = 0; i < 20; ++i) store->add("n", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  store->set("late", "here");
  for (std::thread& t : waiting) t.join();
}

TEST(DistStore, RefusesOtherSecretsAndJobs) {
  int port = free_port();
  std::unique_ptr<Store> store = Store::join(rank_info(0, 2, {port}), long_s);
  struct Case {
    const char *job, *secret, *words;
  };
  const Case cases[] = {{"a job", "", "another SINTER_SECRET"},
                        {"a job", "a secreT", "another SINTER_SECRET"},
                        {"a job", "a secret or two", "another SINTER_SECRET"},
                        {"another job", "a secret", "belongs to another job"}};
  std::vector<std::thread> threads;  // each tries for all its time
  for (const Case& c : cases)
    threads.emplace_back([&] {
      RankInfo other = rank_info(1, 2, {port});
      other.job = c.job, other.secret = c.secret;
      std::string text = error_of(ErrorKind::peer, [&] { Store::join(other, 0.5); });
      EXPECT_TRUE(mentions(text, {"rank 1", c.words, "127.0.0.1:" + std::to_string(port)})) << text;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(Store::join(rank_info(1, 2, {port}), long_s)->add("n", 1), 1);
}

TEST(DistStore, PassesOverForeignServers) {
  Listener silent, rude;
  std::thread reply([&] {
    int fd = accept(rude.fd(), nullptr, nullptr);
    send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
    close(fd);
  });
  int port = free_port();
  std::vector<int> ports = {rude.port(), silent.port(), port};
  std::unique_ptr<Store> zero = Store::join(rank_info(0, 2, ports), long_s),
                         one = Store::join(rank_info(1, 2, ports), long_s);
  reply.join();
  zero->set("where", "here");
  EXPECT_EQ(one->get("where", long_s), "here");

  // Another job's store is a foreign server too.
  RankInfo next[] = {rank_info(0, 2, {port, free_port()}), rank_info(1, 2, {port})};
  next[0].job = next[1].job = "the next job", next[1].ports = next[0].ports;
  std::unique_ptr<Store> next_zero = Store::join(next[0], long_s), next_one = Store::join(next[1], long_s);
  EXPECT_EQ(next_one->try_get("where"), std::nullopt);
}

TEST(DistStore, SaysThatAPortIsTaken) {
  Listener taken;
  std::string text = error_of(ErrorKind::usage, [&] { Store::join(rank_info(0, 2, {taken.port()}), 0.1); });
  EXPECT_TRUE(mentions(text, {"rank 0", std::to_string(taken.port()), "set MASTER_PORT"})) << text;
}

TEST(DistStore, SaysThatRankZeroIsNotThere) {
  int port = free_port();
  std::string text = error_of(ErrorKind::peer, [&] { Store::join(rank_info(3, 4, {port}), 0.05); });
  EXPECT_TRUE(mentions(text, {"rank 3 has not found rank 0", std::to_string(port), "MASTER_ADDR"})) << text;
}

TEST(DistStore, SaysThatRankZeroHasGone) {
  int port = free_port();
  std::unique_ptr<Store> zero = Store::join(rank_info(0, 2, {port}), long_s),
                         one = Store::join(rank_info(1, 2, {port}), long_s);
  std::string waiting;
  std::thread waits([&] { waiting = error_of(ErrorKind::peer, [&] { one->get("never", long_s); }); });
  int64_t begin = steady_ns();
  zero.reset();  // stays a while for a rank that does not go
  waits.join();
  EXPECT_LT(double(steady_ns() - begin), 10e9);
  EXPECT_TRUE(mentions(waiting, {"rank 1 has lost rank 0", "never", std::to_string(port)})) << waiting;
  std::string later = error_of(ErrorKind::peer, [&] { one->set("a", "b"); });
  EXPECT_TRUE(mentions(later, {"rank 1 has lost rank 0"})) << later;
}

TEST(DistStore, StaysForRanksThatStillAsk) {
  int port = free_port();
  std::unique_ptr<Store> zero = Store::join(rank_info(0, 2, {port}), long_s),
                         one = Store::join(rank_info(1, 2, {port}), long_s);
  zero->set("last", "word");
  std::thread goes([&] { zero.reset(); });
  EXPECT_EQ(one->get("last", long_s), "word");
  one.reset();
  goes.join();
}

TEST(DistStore, IsNotHarmedByStrangers) {
  int port = free_port();
  std::unique_ptr<Store> store = Store::join(rank_info(0, 2, {port}), long_s);
  Stranger silent(port), garbage(port), huge(port), almost(port);
  EXPECT_TRUE(silent.connected() && garbage.connected() && huge.connected() && almost.connected());
  garbage.say("GET / HTTP/1.1\r\n\r\n");
  huge.say("\xff\xff\xff\xff and some");
  almost.say(std::string("\x10\0\0\0", 4) + std::string(16, '\xff'));  // a text of −1 bytes
  EXPECT_TRUE(garbage.is_dropped());
  EXPECT_TRUE(huge.is_dropped());
  EXPECT_TRUE(almost.is_dropped());
  // Many who only hold a line: the oldest make room for ranks.
  std::vector<std::unique_ptr<Stranger>> many;
  for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<Stranger>(port));
  EXPECT_TRUE(silent.is_dropped());
  std::unique_ptr<Store> one = Store::join(rank_info(1, 2, {port}), long_s);
  one->set("a", "b");
  EXPECT_EQ(store->get("a", long_s), "b");
}

TEST(DistStore, ServesOthersOnlyWithASecret) {
  for (int rank : {0, 1})
    for (const char* address : {"203.0.113.7", "0.0.0.0"}) {
      RankInfo me = rank_info(rank, 2, {free_port()});
      me.address = address;
      me.secret = "";
      std::string text = error_of(ErrorKind::usage, [&] { Store::join(me, 0.1); });
      EXPECT_TRUE(mentions(text, {address, "SINTER_SECRET", "sinter launch"})) << text;
    }
  RankInfo me = rank_info(0, 2, {free_port()});
  me.secret = "";
  me.address = "localhost";
  EXPECT_EQ(Store::join(me, long_s)->add("n", 1), 1) << "loopback needs none";
}

TEST(DistStore, RefusesAddressesThatCannotBe) {
  RankInfo me = rank_info(0, 2, {free_port()});
  me.address = "203.0.113.7";  // for documentation: nobody's
  std::string text = error_of(ErrorKind::usage, [&] { Store::join(me, 0.1); });
  EXPECT_TRUE(mentions(text, {"203.0.113.7", "no address of this host"})) << text;
  me.address = std::string(70, 'x');  // too long for a name: no name server is asked
  text = error_of(ErrorKind::usage, [&] { Store::join(me, 0.1); });
  EXPECT_TRUE(mentions(text, {"MASTER_ADDR=xxxx", "set it to"})) << text;
  me = rank_info(0, 2, {});
  text = error_of(ErrorKind::usage, [&] { Store::join(me, 0.1); });
  EXPECT_TRUE(mentions(text, {"no port", "set MASTER_PORT"})) << text;
}

}  // namespace
}  // namespace sinter::dist
