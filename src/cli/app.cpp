#include "cli/app.h"

#include <fmt/format.h>
#include <new>
#include <sinter/sinter.hpp>
#include <sstream>

#include "backend/device.h"
#include "cli/misuse.h"
#include "core/error.h"
#include "lab/machine.h"
#include "nn/transformer.h"
#include "system/build_info.h"
#include "system/json.h"
#include "system/streams.h"

namespace sinter {
namespace cli {
namespace {

int complain(const std::string& message, ErrorKind kind) {
  std::string line = message;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  say(fmt::format("sinter: error: {}\n", line));
  return int(kind);
}

// Without a subcommand: the machine, and what to try.
int greet() {
  bool cuda = cuda_backend() != nullptr;
  auto lines = lab::machine_lines(lab::machine_block(cuda ? DeviceType::cuda : DeviceType::cpu));
  write_stdout(fmt::format(R"({}
{}

Try:
  sinter bench model                                how long a training step takes here, and why
  sinter bench model --dtype fp32,bf16 --dry-run    what would fit in memory, before running it
  sinter precision                                  why sums and norms stay in fp32

sinter --help lists every command; sinter doctor checks this machine.
)",
                           lines[1], cuda ? lines[2] : std::string("GPU: none: ") + cuda_missing_reason()));
  return 0;
}

int parse_and_run(int argc, char** argv, const MakeModel& make_model, bool own_model) {
  CLI::App app("sinter: train and measure Transformer language models, on a CPU or a GPU", "sinter");
  app.set_version_flag("--version", fmt::format("sinter {} ({})", build_info().version, build_info().commit));
  app.require_subcommand(0, 1);
  app.footer(
      "Every command has --help with examples. Exit codes: 0 ok, 2 bad usage, 3 does not fit in memory, 4 numerical "
      "fault,\n"
      "5 another process failed, 130 interrupted, 1 anything else.");
  Action action;
  add_bench(app, action, make_model, own_model);
  add_profile(app, action, make_model);
  add_memory(app, action, make_model);
  add_compile(app, action, make_model);
  add_precision(app, action);
  add_doctor(app, action);
  add_show(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text);
    write_stdout(text.str());
    return 0;
  } catch (const CLI::ParseError& e) {
    return complain(misuse(app, e), ErrorKind::usage);
  }
  return action ? action() : greet();
}

}  // namespace

int run(int argc, char** argv, const MakeModel& make_model, bool own_model) {
  set_up_streams();
  try {
    return parse_and_run(argc, argv, make_model, own_model);
  } catch (const Error& e) {
    return complain(e.what(), e.kind());
  } catch (const std::bad_alloc&) {
    return complain("the machine has no memory left; use a smaller --batch, --ctx or --size", ErrorKind::memory);
  } catch (const Json::exception& e) {
    return complain("a JSON file is not as expected: " + message_of(e), ErrorKind::usage);
  } catch (const std::exception& e) {
    return complain(e.what(), ErrorKind::other);
  }
}

}  // namespace cli

int lab_main(int argc, char** argv, const MakeModel& make_model) { return cli::run(argc, argv, make_model, true); }
int lab_main(int argc, char** argv) { return cli::run(argc, argv, make_transformer, false); }

}  // namespace sinter
