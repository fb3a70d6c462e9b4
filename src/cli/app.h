// The command line: one file per subcommand, each adding itself to the program.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "lab/output.h"
#include "nn/model.h"

namespace sinter::cli {

// What the chosen subcommand will do; it runs after the whole command line was understood.
using Action = std::function<int()>;

void add_bench(CLI::App& app, Action& action, const MakeModel& make_model, bool own_model);
void add_bench_attention(CLI::App& bench, Action& action);  // below bench
void add_profile(CLI::App& app, Action& action, const MakeModel& make_model);
void add_memory(CLI::App& app, Action& action, const MakeModel& make_model);
void add_compile(CLI::App& app, Action& action, const MakeModel& make_model);
void add_precision(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);

// An option whose value is text, not empty and not the next option.
CLI::Option* add_text(CLI::App& command, const std::string& flag, std::string& value, const std::string& help,
                      const std::string& type, const std::string& group);

// --device, the same for every subcommand that runs something.
void add_device_flag(CLI::App& command, std::string& value, const std::string& group);
// What it says, or the default: cpu or cuda, once the GPU that cuda:N names has been chosen for this process.
std::string device_of(const std::string& flag);

// What commands with a model and with attention alone say of the same flags.
constexpr const char* attention_help =
    "naive (scores are kept), flash (they are not), tiled (CPU, the readable reference), portable (CUDA), or auto: "
    "flash where there is a kernel, otherwise naive";
constexpr const char* deterministic_help = "the same bits every time, also from flash attention's backward pass";

// --json, --table and --plot, the same for every subcommand.
enum class Plot { no, yes };
void add_output_flags(CLI::App& command, lab::OutputOptions& options, Plot plot);

int run(int argc, char** argv, const MakeModel& make_model, bool own_model);

}  // namespace sinter::cli
