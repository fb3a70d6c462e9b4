// Where the PyTorch side of comparisons lies, and whether there is a PyTorch to run it.
#pragma once
#include <optional>
#include <string>

namespace sinter::lab {

std::string peer_script(
    const std::string& file);  // in the source tree, or where sinter is installed; refuses if neither
std::optional<std::string> torch_version(const std::string& python);  // none if that python cannot import it

}  // namespace sinter::lab
