#include "dist/store_server.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "core/check.h"

namespace sinter::dist::store {
namespace {

constexpr size_t most_strangers = 64;  // who have connected and not yet said who they are
constexpr double introduction_s = 5;   // that a stranger has for it
constexpr double farewell_s = 1;       // that rank 0 stays for the others

// How long it takes says nothing about where they differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) difference |= (unsigned char)(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  return difference == 0;
}

}  // namespace

struct Server::Client {
  Socket socket;
  bool known = false;    // has said the job and the secret
  bool gone = false;     // to be dropped
  bool waiting = false;  // for `key`; nothing is read of it meanwhile
  std::string key;
  int64_t deadline = never;  // of its introduction, or of its waiting
  std::string in, out;
};

Server::Server(Socket listening, const RankInfo& me)
    : listening_(std::move(listening)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      job_(me.job),
      secret_(me.secret) {
  if (!wake_) fail_with(ErrorKind::other, "cannot make an eventfd ({})", std::strerror(errno));
  // Signals are for the threads that the program knows of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
Server::~Server() {
  stopping_ = true;
  eventfd_write(wake_.fd(), 1);
  thread_.join();
}

void Server::serve() {
  int64_t end = never;
  for (;;) {
    if (stopping_ && end == never) end = in_seconds(farewell_s);
    bool alone = std::none_of(clients_.begin(), clients_.end(), [](auto& c) { return c->known; });
    if (stopping_ && (alone || steady_ns() >= end)) return;
    std::vector<pollfd> polled = {{wake_.fd(), POLLIN, 0}, {listening_.fd(), POLLIN, 0}};
    int64_t next = end;
    for (auto& c : clients_) {
      polled.push_back({c->socket.fd(), short(!c->out.empty() ? POLLOUT : c->waiting ? POLLRDHUP : POLLIN), 0});
      next = std::min(next, c->deadline);
    }
    poll(polled.data(), polled.size(), ms_until(next));
    if (polled[0].revents) {
      eventfd_t count;
      eventfd_read(wake_.fd(), &count);
    }
    for (size_t i = 0; i < clients_.size(); ++i) attend(*clients_[i], polled[i + 2].revents);
    if (polled[1].revents) welcome_strangers();
    std::erase_if(clients_, [](auto& c) { return c->gone; });
  }
}

void Server::welcome_strangers() {
  for (size_t n = 0; n < most_strangers / 4; ++n) {
    Socket socket(accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) sleep_s(0.01);  // until somebody goes; it would be tried at once
      break;
    }
    int yes = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    clients_.push_back(std::make_unique<Client>());
    clients_.back()->socket = std::move(socket);
    clients_.back()->deadline = in_seconds(introduction_s);
  }
  // Those who only connect must not use up what ranks need: the oldest make room.
  auto strangers = size_t(std::count_if(clients_.begin(), clients_.end(), [](auto& c) { return !c->known; }));
  for (size_t i = 0; strangers > most_strangers; ++i)
    if (!clients_[i]->known) clients_[i]->gone = true, --strangers;
}

void Server::attend(Client& c, short events) {
  try {
    if (c.waiting && (events & (POLLRDHUP | POLLHUP | POLLERR))) c.gone = true;
    else if (events & POLLOUT) flush(c);
    else if (events) receive(c);
    while (!c.gone && !c.waiting && c.out.empty() && take_message(c)) {
    }
  } catch (const std::exception&) {  // no memory for what it sent
    c.gone = true;
  }
  if (steady_ns() < c.deadline) return;
  if (c.known) answer(c, Answer::timed_out);
  else c.gone = true;
}

void Server::receive(Client& c) {
  char buffer[65536];
  ssize_t n = recv(c.socket.fd(), buffer, sizeof buffer, 0);
  if (n > 0) c.in.append(buffer, size_t(n));
  else if (n == 0 || (errno != EAGAIN && errno != EINTR)) c.gone = true;
}

bool Server::take_message(Client& c) {
  if (c.in.size() < sizeof(uint32_t)) return false;
  size_t size = sealed_size(c.in), whole = sizeof(uint32_t) + size;
  if (size > (c.known ? largest_message : largest_hello)) c.gone = true;
  if (c.gone || c.in.size() < whole) return false;
  Reader message(std::string_view(c.in).substr(sizeof(uint32_t), size));
  if (c.known) obey(c, message);
  else introduce(c, message);
  c.in.erase(0, whole);
  return true;
}

void Server::introduce(Client& c, Reader& message) {
  std::string_view word = message.text(), job = message.text(), secret = message.text();
  c.gone = !message.valid() || word != magic;
  if (c.gone) return;
  if (job != job_) return answer(c, Answer::other_job);
  c.known = same_secret(secret, secret_);
  c.gone = !c.known;
  if (c.known) answer(c, Answer::welcome);
}

void Server::obey(Client& c, Reader& message) {
  auto op = Op(message.number());
  std::string key(message.text());
  if (op == Op::set) {
    std::string value(message.text());
    if (!(c.gone = !message.valid())) store(key, value), answer(c, Answer::done);
  } else if (op == Op::get) {
    int64_t ms = message.number();
    if ((c.gone = !message.valid())) return;
    if (auto found = values_.find(key); found != values_.end()) return answer(c, Answer::done, found->second);
    if (ms <= 0) return answer(c, Answer::timed_out);
    c.waiting = true, c.key = key, c.deadline = in_seconds(double(ms) / 1e3);
  } else if (op == Op::add) {
    int64_t n = message.number(), sum = 0;
    if ((c.gone = !message.valid())) return;
    const std::string& old = values_.try_emplace(key, "0").first->second;
    auto [end, error] = std::from_chars(old.data(), old.data() + old.size(), sum);
    if (error != std::errc() || end != old.data() + old.size()) return answer(c, Answer::not_a_number);
    store(key, std::to_string(int64_t(uint64_t(sum) + uint64_t(n))));
    answer(c, Answer::done, values_[key]);
  } else {
    c.gone = true;
  }
}

void Server::store(const std::string& key, const std::string& value) {
  values_[key] = value;
  for (auto& c : clients_)
    if (c->waiting && c->key == key) answer(*c, Answer::done, value);
}

void Server::answer(Client& c, Answer kind, const std::string& value) {
  c.waiting = false, c.deadline = c.known ? never : c.deadline;
  c.out += Message().put(int64_t(kind)).put(value).sealed();
  flush(c);
}

void Server::flush(Client& c) {
  ssize_t n = send(c.socket.fd(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
  if (n > 0) c.out.erase(0, size_t(n));
  else if (errno != EAGAIN && errno != EINTR) c.gone = true;
}

}  // namespace sinter::dist::store
