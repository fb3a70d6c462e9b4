#include "dist/launcher.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <sys/random.h>
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

// 128 bits that nobody can guess.
std::string random_text() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != ssize_t(sizeof bytes))
    fail_with(ErrorKind::other, "no random numbers can be had for the ranks' secret ({}); set SINTER_SECRET yourself",
              std::strerror(errno));
  std::string text;
  for (unsigned char b : bytes) text += fmt::format("{:02x}", b);
  return text;
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
    bool all_ended = false;
    while (!(all_ended = look()) && !failed_ && !interrupted()) wait_a_little();
    if (all_ended && !failed_) return 0;
    if (failed_) {
      look_for(options_.notice_s, true);
      say(fmt::format("sinter launch: rank {} {}{}\n", failed_->rank, ending_text(failed_->result.exit_code),
                      failed_->result.exit_code == 127 ? ": " + failed_->result.output : ""));
    }
    stop(failed_ ? options_.grace_s : options_.interrupted_grace_s);
    if (!interrupted()) return launch_code_of(failed_->result.exit_code);
    return ended_well() ? 0 : interrupted_exit_code;
  }

 private:
  ChildProcess& child(int rank) { return *children_[size_t(rank)]; }
  // Training saves what it has when it is asked to stop, and that is no failure.
  bool ended_well() {
    return std::all_of(children_.begin(), children_.end(), [](auto& c) {
      std::optional<ProcessResult> result = c->wait(0);
      return result && result->exit_code == 0;
    });
  }

  // Whole lines, so that those of different ranks do not mix; the rest when the rank has ended.
  void pass_on(int rank, bool last = false) {
    if (rank == 0) return;
    std::string& text = lines_[size_t(rank)];
    text += child(rank).take_output();
    if (last && !text.empty() && text.back() != '\n') text += '\n';
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      say(fmt::format("[rank {}] {}", rank, text.substr(0, end + 1)));
  }

  // Passes on what ranks say, and keeps which one failed first; whether all have ended.
  bool look() {
    bool all_ended = true;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      pass_on(rank);
      std::optional<ProcessResult> result = child(rank).wait(0);
      all_ended = all_ended && result;
      if (!result) continue;
      pass_on(rank, true);
      // Who says that a peer has failed may be seen before that peer is.
      bool blames_another = result->exit_code == int(ErrorKind::peer);
      bool first = !failed_ || (failed_->result.exit_code == int(ErrorKind::peer) && !blames_another);
      if (result->exit_code != 0 && first && !stopping_) failed_ = {rank, *result};
    }
    return all_ended;
  }

  void look_for(double seconds, bool until_interrupted) {
    int64_t begin = steady_ns();
    while (!look() && double(steady_ns() - begin) < 1e9 * seconds && !(until_interrupted && interrupted()))
      wait_a_little();
  }

  static void wait_a_little() { usleep(useconds_t(1e6 * look_s)); }

  // All at once are asked, and all share the time they are given. How they end then is our doing.
  void stop(double grace_s) {
    stopping_ = true;
    for (auto& c : children_) c->kill(SIGTERM);
    look_for(grace_s, false);
    for (auto& c : children_) c->kill(SIGKILL);
  }

  struct Failure {
    int rank;
    ProcessResult result;
  };

  const LaunchOptions& options_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<std::string> lines_;  // of each rank, not yet passed on
  std::optional<Failure> failed_;   // the first to fail
  bool stopping_ = false;
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
  // We may run under torchrun, whose own are not for these ranks.
  all.insert(all.end(), {{"TORCHELASTIC_RUN_ID", o.job}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  if (!o.secret.empty()) all.emplace_back("SINTER_SECRET", o.secret);
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
  if (o.job.empty()) o.job = "launch-" + random_text();
  if (const char* secret = std::getenv("SINTER_SECRET"); o.secret.empty() && !(secret && *secret))
    o.secret = random_text();
  catch_interrupts();
  return Ranks(o).run();
}

}  // namespace sinter::dist
