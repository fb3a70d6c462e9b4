#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <map>
#include <new>
#include <sinter/sinter.hpp>
#include <sstream>

#include "backend/device.h"
#include "cli/misuse.h"
#include "core/error.h"
#include "lab/machine.h"
#include "lab/ranks.h"
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

// Lines that keep to the terminal's width; what describes a flag stays in its column.
std::string fitted(const std::string& text) {
  constexpr size_t flags_end = 30;  // where CLI11 begins what describes a flag
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    bool flag =
        line.rfind("  ", 0) == 0 && line.size() > flags_end && line[flags_end - 1] == ' ' && line[flags_end] != ' ';
    out += lab::wrapped(line, lab::text_width(), flag ? std::string(flags_end - 2, ' ') : "  ");
  }
  return out;
}

// Without a subcommand: the machine, and what to try.
int greet() {
  bool cuda = cuda_backend() != nullptr;
  auto lines = lab::machine_lines(lab::machine_block(cuda ? DeviceType::cuda : DeviceType::cpu));
  write_stdout(fitted(fmt::format(R"({}
{}

Try:
  sinter bench model                              how long a step takes here
  sinter bench model --dtype fp32,bf16 --dry-run  what would fit in memory
  sinter precision                                why norms stay in fp32

sinter --help lists every command; sinter doctor checks this machine.
)",
                                  lines[1], cuda ? lines[2] : std::string("GPU: none: ") + cuda_missing_reason())));
  return 0;
}

// The commands of the laboratory as subcommands: "bench model" is `model` below `bench`.
class Commands {
 public:
  Commands(CLI::App& app, const lab::Program& program) : app_(app), program_(program) {}

  CLI::App& add(const lab::Command& command) {
    size_t space = command.name.find(' ');
    CLI::App* parent = &app_;
    if (space != std::string::npos) {
      CLI::App*& group = groups_[command.name.substr(0, space)];
      if (!group) group = app_.add_subcommand(command.name.substr(0, space))->require_subcommand(1);
      std::string& names = names_[group];
      names += (names.empty() ? "" : ", ") + command.name;
      group->description(names + ": " + command.summary);
      parent = group;
    }
    CLI::App* c = parent->add_subcommand(command.name.substr(space + 1), command.summary);
    c->footer(command.examples);
    auto given = std::make_shared<Given>();
    given->run = command.declare(given->flags, program_);
    for (const lab::Flag& flag : given->flags.all) add_flag(*c, flag, *given);
    c->callback([this, given] { chosen_ = given; });
    return *c;
  }

  // Once the whole command line has been understood.
  bool chosen() const { return chosen_ != nullptr; }
  int run() const {
    for (size_t i = 0; i < chosen_->flags.all.size(); ++i)
      if (chosen_->text[i]) chosen_->flags.all[i].value(*chosen_->text[i]);
    return chosen_->run();
  }

 private:
  struct Given {
    lab::Flags flags;
    lab::Command::Run run;
    std::vector<std::optional<std::string>> text;  // of each flag
  };

  static void add_flag(CLI::App& command, const lab::Flag& flag, Given& given) {
    size_t i = given.text.size();
    given.text.emplace_back();
    if (flag.type.empty()) {
      command
          .add_flag_callback(
              flag.name, [&given, i] { given.text[i] = ""; }, flag.help)
          ->group(flag.group);
      return;
    }
    // The parser takes whatever follows; a second option there means that the first one's value was forgotten.
    auto is_value = [](const std::string& s) {
      if (s.rfind("--", 0) == 0) return "its value is missing: " + s + " follows";
      return std::string(s.empty() ? "the value is empty" : "");
    };
    command
        .add_option_function<std::string>(
            flag.name, [&given, i](const std::string& s) { given.text[i] = s; }, flag.help)
        ->type_name(flag.type)
        ->group(flag.group)
        ->check(is_value);
  }

  CLI::App& app_;
  const lab::Program& program_;
  std::map<std::string, CLI::App*> groups_;       // commands of two words, by the first
  std::map<const CLI::App*, std::string> names_;  // "bench attention, bench model"
  std::shared_ptr<Given> chosen_;
};

int parse_and_run(int argc, char** argv, const lab::Program& program) {
  CLI::App app("sinter: train and measure Transformer language models, on a CPU or a GPU", "sinter");
  app.set_version_flag("--version", fmt::format("sinter {} ({})", build_info().version, build_info().commit));
  app.require_subcommand(0, 1);
  app.footer(
      "Every command has --help with examples. Exit codes: 0 ok, 2 bad usage, 3 does not fit in memory, 4 numerical "
      "fault, 5 another process failed, 130 interrupted, 1 anything else.");
  Commands commands(app, program);
  for (const lab::Command& c : lab::commands()) commands.add(c);
  auto files = std::make_shared<std::vector<std::string>>();
  commands.add(show_command(files))
      .add_option("record", *files, "a file that --json wrote, or one or several that --log did")
      ->type_name("RECORD")
      ->required();
  auto words = std::make_shared<std::vector<std::string>>();
  commands.add(launch_command(words))
      .add_option("command", *words, "a command of sinter, or any program, with its arguments")
      ->type_name("-- COMMAND …")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text);
    write_stdout(fitted(text.str()));
    return 0;
  } catch (const CLI::ParseError& e) {
    return complain(misuse(app, e), ErrorKind::usage);
  }
  return commands.chosen() ? commands.run() : greet();
}

}  // namespace

int run(int argc, char** argv, const lab::Program& program) {
  set_up_streams();
  try {
    lab::prefer_gpu_of_rank();
    return parse_and_run(argc, argv, program);
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

int lab_main(int argc, char** argv, const MakeModel& make_model) { return cli::run(argc, argv, {make_model, true}); }
int lab_main(int argc, char** argv) { return cli::run(argc, argv, {make_transformer, false}); }

}  // namespace sinter
