#include "dist/launcher.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "system/host.h"
#include "system/process.h"
#include "system/signals.h"
#include "system/streams.h"

namespace sinter::dist {
namespace {

constexpr double look_s = 0.01;  // how often ranks are looked at

// A port that nobody listens at. Another program may take it before rank 0 does; rank 0 then says so.
int free_port(const std::string& address) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  check(inet_pton(AF_INET, address.c_str(), &at.sin_addr) == 1,
        "--master-addr {}: not an IPv4 address such as 127.0.0.1", address);
  socklen_t size = sizeof at;
  bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0 &&
               getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0;
  std::string why = bound ? "" : std::strerror(errno);
  if (fd >= 0) close(fd);
  check(bound, "--master-addr {}: no port can be had there ({}); name an address of this host", address, why);
  return ntohs(at.sin_port);
}

// "exit code 1", "signal 9 (Killed)".
std::string ending_text(int exit_code) {
  if (exit_code <= 128) return fmt::format("ended with exit code {}", exit_code);
  return fmt::format("was ended by signal {} ({})", exit_code - 128, strsignal(exit_code - 128));
}

int launch_code_of(int exit_code) {
  bool said_so =
      exit_code == int(ErrorKind::usage) || exit_code == int(ErrorKind::memory) || exit_code == int(ErrorKind::numeric);
  return said_so ? exit_code : int(ErrorKind::peer);
}

class Ranks {
 public:
  explicit Ranks(const LaunchOptions& options) : options_(options), lines_(size_t(options.ranks)) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      ProcessOptions p;
      for (const auto& [name, value] : rank_variables(options_, rank)) p.environment.emplace_back(name, value);
      p.program = options_.program;
      p.collect_output = p.collect_errors = rank > 0;
      p.own_group = true;  // so that what a rank has started ends with it
      children_.push_back(std::make_unique<ChildProcess>(options_.command, p));
    }
  }

  int run() {
    for (;;) {
      bool all_ended = true;
      for (int rank = 0; rank < options_.ranks; ++rank) {
        pass_on(rank);
        std::optional<ProcessResult> result = child(rank).wait(0);
        all_ended = all_ended && result;
        if (result) pass_on(rank, true);
        if (!result || result->exit_code == 0) continue;
        // The first to fail is the reason; what the others say while they are stopped follows from it.
        say(fmt::format("sinter launch: rank {} {}{}\n", rank, ending_text(result->exit_code),
                        result->exit_code == 127 ? ": " + result->output : ""));
        stop();
        return interrupted() ? interrupted_exit_code : launch_code_of(result->exit_code);
      }
      if (all_ended) return 0;
      if (interrupted()) {
        stop();
        return interrupted_exit_code;
      }
      usleep(useconds_t(1e6 * look_s));
    }
  }

 private:
  ChildProcess& child(int rank) { return *children_[size_t(rank)]; }

  // Whole lines, so that those of different ranks do not mix; the rest when the rank has ended.
  void pass_on(int rank, bool last = false) {
    if (rank == 0) return;
    std::string& text = lines_[size_t(rank)];
    text += child(rank).take_output();
    if (last && !text.empty() && text.back() != '\n') text += '\n';
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      say(fmt::format("[rank {}] {}", rank, text.substr(0, end + 1)));
  }

  // All at once are asked, and all share the time they are given.
  void stop() {
    for (auto& c : children_) c->kill(SIGTERM);
    int64_t begin = steady_ns();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      double left = options_.grace_s - double(steady_ns() - begin) / 1e9;
      child(rank).wait(std::max(0.0, left));
      pass_on(rank, true);
    }
    for (auto& c : children_) c->kill(SIGKILL);
  }

  const LaunchOptions& options_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<std::string> lines_;  // of each rank, not yet passed on
};

}  // namespace

std::vector<std::pair<std::string, std::string>> rank_variables(const LaunchOptions& o, int rank) {
  std::string n = std::to_string(o.ranks), r = std::to_string(rank);
  std::vector<std::pair<std::string, std::string>> all = {{"RANK", r},
                                                          {"LOCAL_RANK", r},
                                                          {"GROUP_RANK", "0"},
                                                          {"WORLD_SIZE", n},
                                                          {"LOCAL_WORLD_SIZE", n},
                                                          {"GROUP_WORLD_SIZE", "1"},
                                                          {"MASTER_ADDR", o.master_addr},
                                                          {"MASTER_PORT", std::to_string(o.master_port)}};
  // Every rank would take all cores otherwise; who has set a number means it.
  std::string threads = std::to_string(o.threads > 0 ? o.threads : std::max(1, int(host_cores()) / o.ranks));
  for (const char* name : {"SINTER_THREADS", "OMP_NUM_THREADS"})
    if (o.threads > 0 || !std::getenv(name)) all.emplace_back(name, threads);
  return all;
}

int launch(const LaunchOptions& given) {
  LaunchOptions o = given;
  check(o.ranks >= 1 && o.ranks <= 1024, "-n must be between 1 and 1024, not {}", o.ranks);
  check(!o.command.empty(), "nothing to launch; name a program, or a command of sinter, after --");
  check(o.master_port >= 0 && o.master_port <= 65535, "--master-port must be between 1 and 65535, not {}",
        o.master_port);
  check(o.threads >= 0 && o.threads <= 1024, "--threads must be between 1 and 1024, not {}", o.threads);
  if (o.master_port == 0) o.master_port = free_port(o.master_addr);
  catch_interrupts();
  return Ranks(o).run();
}

}  // namespace sinter::dist
