// The PyTorch side of comparisons: where its scripts lie, whether there is a PyTorch to run them, and what they reply.
#pragma once
#include <fmt/format.h>
#include <optional>
#include <string>
#include <vector>

#include "lab/sweep.h"
#include "system/json.h"

namespace sinter::lab {

std::string peer_script(
    const std::string& file);  // in the source tree, or where sinter is installed; refuses if neither
std::optional<std::string> torch_version(const std::string& python);  // none if that python cannot import it

struct PeerCommand {
  std::vector<std::string> words;
  template <class T> void add(const char* flag, const T& value) {
    words.insert(words.end(), {flag, fmt::format("{}", value)});
  }
};
// For a script that trains a model: its flags so far are what every such script is told of the run.
PeerCommand peer_command(const std::string& python, const std::string& file, const MeasuredRun& run);

// What the script wrote, an object with "results"; or null, with the reason (empty when the user interrupted).
Json peer_reply(const std::vector<std::string>& command, std::string& why_not);

}  // namespace sinter::lab
