// Other processes: fresh ones of ourselves, and peers. None outlives the one that started it.
#pragma once
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace sinter {

struct ProcessOptions {
  // What differs from our own environment: variables to set, or to remove where there is no value.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};
  std::string program = {};     // the file to run where the first argument is only what it is called
  std::string input = {};       // on its standard input, which then stays open; otherwise that is empty
  bool collect_output = true;   // stdout is collected; otherwise it is ours
  bool collect_errors = false;  // and stderr with it
  bool quiet = false;           // stderr is dropped; otherwise it is ours
  bool own_group = false;       // a process group of its own: signals reach its children too, but Ctrl-C reaches none
  double timeout_s = 0;         // run_process: then the child is stopped; 0: never
  bool until_interrupted = false;  // run_process: it is stopped too when this process is interrupted
  double grace_s = 5;              // between asking it to stop and killing it
};

struct ProcessResult {
  int exit_code = 0;  // 128 + signal if one ended it; 127 if it could not be started, with the reason as output
  std::string output;
  bool timed_out = false;
};

// Runs a program (found on PATH) with an empty standard input, and waits.
ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

// A program that runs beside us. It is killed with this object, and by the kernel when the thread that started it ends,
// so start it on one that stays. It belongs to our process group: Ctrl-C reaches it too.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }  // 0 if it could not be started
  // What it has written since this was last asked; wait() and this share what is collected.
  std::string take_output();
  // Waits until it has ended, or for so long: then there is no result yet. A child whose output is collected stands
  // still when the pipe is full (64 KiB) and nobody waits. What children of its own write after its end is not
  // collected.
  std::optional<ProcessResult> wait(double timeout_s);
  ProcessResult wait();
  void close_input();                  // where there is some: it ends
  void kill(int signal);               // nothing if it has ended; a group, also after its first process has
  ProcessResult stop(double grace_s);  // SIGTERM, and SIGKILL after so long

 private:
  bool has_ended();
  bool read_output();  // what there is; false at its end

  pid_t pid_ = 0;
  int input_ = -1, output_ = -1;  // our ends of the pipes
  bool own_group_ = false;
  bool ended_ = false;
  ProcessResult result_;
};

std::string own_executable();

}  // namespace sinter
