// Launchers on several hosts, started by ssh. The secret goes through ssh's standard input, which no command line
// shows. That stays open as long as we are there, and a launcher whose input ends stops its ranks: ssh passes on no
// signal.
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "core/check.h"
#include "dist/launcher.h"

namespace sinter::dist {
namespace {

// One word of a POSIX shell, whatever is in it.
std::string shell_word(const std::string& text) {
  std::string all = "'";
  for (char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

}  // namespace

std::vector<LaunchedProgram> programs_of_hosts(const LaunchOptions& o) {
  std::set<std::string> seen;
  for (const std::string& host : o.hosts) {
    check(!host.empty() && host[0] != '-', "--hosts: '{}' is no host; give names as ssh takes them, a,b or me@a", host);
    check(seen.insert(host).second, "--hosts: {} is there twice; -n says how many ranks each host has", host);
  }
  bool loopback = o.master_addr == "127.0.0.1";
  std::string first = o.hosts[0].substr(o.hosts[0].find('@') + 1), program = own_executable();
  std::string common = fmt::format("cd {} && exec {} launch -n {} --nodes {} --master-addr {} --master-port {}",
                                   shell_word(std::filesystem::current_path().string()), shell_word(program), o.ranks,
                                   o.hosts.size(), shell_word(loopback ? first : o.master_addr), o.master_port);
  if (o.threads > 0) common += fmt::format(" --threads {}", o.threads);
  if (o.mps) common += " --mps";
  std::string command;
  for (size_t i = 0; i < o.command.size(); ++i)
    if (i > 0 || o.program.empty()) command += " " + shell_word(o.command[i]);

  std::vector<LaunchedProgram> all;
  for (size_t i = 0; i < o.hosts.size(); ++i) {
    LaunchedProgram p{"host " + o.hosts[i], "", i == 0, {}, {}};
    p.command = {"ssh",      "-T",
                 "-o",       "BatchMode=yes",
                 o.hosts[i], fmt::format("{} --node {} --secret-stdin --until-stdin-ends --{}", common, i, command)};
    p.process.input = o.secret + "\n";
    all.push_back(std::move(p));
  }
  return all;
}

}  // namespace sinter::dist
