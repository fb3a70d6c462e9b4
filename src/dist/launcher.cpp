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
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "dist/mps.h"
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
  if (exit_code <= 128 || exit_code > 128 + SIGRTMAX) return fmt::format("ended with exit code {}", exit_code);
  return fmt::format("was ended by signal {} ({})", exit_code - 128, strsignal(exit_code - 128));
}

int launch_code_of(int exit_code) {
  bool said_so =
      exit_code == int(ErrorKind::usage) || exit_code == int(ErrorKind::memory) || exit_code == int(ErrorKind::numeric);
  return said_so ? exit_code : int(ErrorKind::peer);
}

std::vector<LaunchedProgram> programs_of_ranks(const LaunchOptions& o, const std::optional<Mps>& mps) {
  std::vector<LaunchedProgram> all;
  for (int local = 0; local < o.ranks; ++local) {
    int rank = o.node * o.ranks + local;
    LaunchedProgram p{fmt::format("rank {}", rank), fmt::format("[rank {}] ", rank), rank == 0, o.command, {}};
    if (mps)
      for (const auto& [name, value] : mps->variables()) p.process.environment.emplace_back(name, value);
    for (const auto& [name, value] : rank_variables(o, local)) p.process.environment.emplace_back(name, value);
    p.process.program = o.program;
    all.push_back(std::move(p));
  }
  return all;
}

// Whether standard input has ended. What is there instead is dropped.
bool stdin_has_ended() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  if (poll(&in, 1, 0) <= 0) return false;
  char dropped[256];
  return read(STDIN_FILENO, dropped, sizeof dropped) <= 0;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options) {
    if (options_.mps && options_.hosts.empty()) mps_.emplace();
    programs_ = options_.hosts.empty() ? programs_of_ranks(options_, mps_) : programs_of_hosts(options_);
    lines_.resize(programs_.size());
    for (LaunchedProgram& p : programs_) {
      p.process.collect_output = p.process.collect_errors = !p.is_first;
      p.process.own_group = true;  // so that what a rank has started ends with it
      children_.push_back(std::make_unique<ChildProcess>(p.command, p.process));
    }
  }

  int run() {
    bool all_ended = false;
    while (!(all_ended = look()) && !failed_ && !is_to_stop()) wait_a_little();
    if (all_ended && !failed_) return 0;
    if (failed_) {
      look_for(options_.notice_s, true);
      // A launcher of another host has named its rank.
      if (bool says_itself = !options_.hosts.empty() && failed_->result.exit_code < 127; !says_itself)
        say(fmt::format("sinter launch: {} {}{}\n", programs_[failed_->index].name,
                        ending_text(failed_->result.exit_code),
                        failed_->result.exit_code == 127 ? ": " + failed_->result.output : ""));
    }
    stop(failed_ ? options_.grace_s : options_.interrupted_grace_s);
    if (!is_to_stop()) return launch_code_of(failed_->result.exit_code);
    return ended_well() ? 0 : interrupted_exit_code;
  }

 private:
  // Asked to by a signal, or left alone by who started it.
  bool is_to_stop() {
    left_alone_ = left_alone_ || (options_.until_stdin_ends && stdin_has_ended());
    return left_alone_ || interrupted();
  }
  // Training saves what it has when it is asked to stop, and that is no failure.
  bool ended_well() {
    return std::all_of(children_.begin(), children_.end(), [](auto& c) {
      std::optional<ProcessResult> result = c->wait(0);
      return result && result->exit_code == 0;
    });
  }

  // Whole lines, so that those of different ranks do not mix; the rest when the rank has ended.
  void pass_on(size_t index, bool last = false) {
    if (programs_[index].is_first) return;
    std::string& text = lines_[index];
    text += children_[index]->take_output();
    if (last && !text.empty() && text.back() != '\n') text += '\n';
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      say(programs_[index].prefix + text.substr(0, end + 1));
  }

  // Passes on what ranks say, and keeps which one failed first; whether all have ended.
  bool look() {
    bool all_ended = true;
    for (size_t i = 0; i < children_.size(); ++i) {
      pass_on(i);
      std::optional<ProcessResult> result = children_[i]->wait(0);
      all_ended = all_ended && result;
      if (!result) continue;
      pass_on(i, true);
      // Who says that a peer has failed may be seen before that peer is.
      bool blames_another = result->exit_code == int(ErrorKind::peer);
      bool first = !failed_ || (failed_->result.exit_code == int(ErrorKind::peer) && !blames_another);
      if (result->exit_code != 0 && first && !stopping_) failed_ = {i, *result};
    }
    return all_ended;
  }

  void look_for(double seconds, bool until_interrupted) {
    int64_t begin = steady_ns();
    while (!look() && double(steady_ns() - begin) < 1e9 * seconds && !(until_interrupted && is_to_stop()))
      wait_a_little();
  }

  static void wait_a_little() { usleep(useconds_t(1e6 * look_s)); }

  // All at once are asked, and all share the time they are given. How they end then is our doing.
  void stop(double grace_s) {
    stopping_ = true;
    for (auto& c : children_) {
      if (options_.hosts.empty()) c->kill(SIGTERM);
      else c->close_input();  // a signal would end ssh, and tell its launcher nothing
    }
    look_for(grace_s, false);
    for (auto& c : children_) c->kill(SIGKILL);
  }

  struct Failure {
    size_t index;
    ProcessResult result;
  };

  const LaunchOptions& options_;
  std::optional<Mps> mps_;  // ends after the ranks
  std::vector<LaunchedProgram> programs_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  std::vector<std::string> lines_;  // of each program, not yet passed on
  std::optional<Failure> failed_;   // the first to fail
  bool stopping_ = false, left_alone_ = false;
};

// Below those that Linux gives to clients (32768 and up).
int random_port() {
  uint16_t random = 0;
  check(getrandom(&random, sizeof random, 0) == ssize_t(sizeof random),
        "no random numbers can be had; give --master-port");
  return 20000 + random % 11000;
}

void validate(const LaunchOptions& o) {
  check(o.ranks >= 1 && o.ranks <= 1024, "-n must be between 1 and 1024, not {}", o.ranks);
  check(!o.command.empty(), "nothing to launch; name a program, or a command of sinter, after --");
  check(o.master_port >= 0 && o.master_port <= 65535, "--master-port must be between 1 and 65535, not {}",
        o.master_port);
  check(o.threads >= 0 && o.threads <= 1024, "--threads must be between 1 and 1024, not {}", o.threads);
  check(o.restarts >= 0 && o.restarts <= 1000, "--restarts must be between 0 and 1000, not {}", o.restarts);
  check(o.nodes >= 1 && o.nodes <= 10000, "--nodes must be between 1 and 10000, not {}", o.nodes);
  check(o.node >= 0 && o.node < o.nodes, "--node {}: there are {} (--nodes), counted from 0", o.node, o.nodes);
  if (o.nodes == 1) return;
  check(o.hosts.empty(), "--hosts starts a launcher on each; leave out --nodes and --node");
  check(o.restarts == 0, "--restarts: launchers of several hosts would have to start again together; use --hosts");
  const char* secret = std::getenv("SINTER_SECRET");
  check(o.master_port > 0 && (!o.secret.empty() || (secret && *secret)),
        "--nodes {}: launchers of one job need the same --master-addr, --master-port and SINTER_SECRET (or "
        "--secret-stdin); give all three",
        o.nodes);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> rank_variables(const LaunchOptions& o, int rank) {
  auto text = [](int n) { return std::to_string(n); };
  std::vector<std::pair<std::string, std::string>> all = {
      {"RANK", text(o.node * o.ranks + rank)}, {"LOCAL_RANK", text(rank)},          {"GROUP_RANK", text(o.node)},
      {"WORLD_SIZE", text(o.nodes * o.ranks)}, {"LOCAL_WORLD_SIZE", text(o.ranks)}, {"GROUP_WORLD_SIZE", text(o.nodes)},
      {"MASTER_ADDR", o.master_addr},          {"MASTER_PORT", text(o.master_port)}};
  // We may run under torchrun, whose own are not for these ranks.
  all.insert(all.end(), {{"TORCHELASTIC_RUN_ID", o.job}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  if (!o.secret.empty()) all.emplace_back("SINTER_SECRET", o.secret);
  // Every rank would take all cores otherwise; who has set a number means it.
  std::string threads = text(o.threads > 0 ? o.threads : std::max(1, int(host_cores()) / o.ranks));
  for (const char* name : {"SINTER_THREADS", "OMP_NUM_THREADS"})
    if (o.threads > 0 || !std::getenv(name)) all.emplace_back(name, threads);
  return all;
}

int launch(const LaunchOptions& given) {
  validate(given);
  catch_interrupts();
  for (int restarts = 0;; ++restarts) {
    // Ranks that are started again meet under another name at another port: what is left of the others reaches nobody.
    LaunchOptions o = given;
    bool several = o.nodes > 1 || !o.hosts.empty();
    if (o.master_port == 0) o.master_port = several ? random_port() : free_port(o.master_addr);
    // Launchers of several hosts have a name in common without being told one; the secret tells their jobs apart.
    if (o.job.empty()) o.job = several ? "launch" : "launch-" + random_text();
    if (const char* secret = std::getenv("SINTER_SECRET"); o.secret.empty()) {
      bool is_set = secret && *secret;
      if (!is_set) o.secret = random_text();
      else if (!o.hosts.empty()) o.secret = secret;  // for their launchers
    }
    int code = Launch(o).run();
    if (code != int(ErrorKind::peer) || restarts == o.restarts || interrupted()) return code;
    say(fmt::format("sinter launch: starting all ranks again ({} of {})\n", restarts + 1, o.restarts));
  }
}

}  // namespace sinter::dist
