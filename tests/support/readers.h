// What reads files that others have written: whatever the bytes are, they are read or refused.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sinter {

std::vector<std::string> reader_names();  // "safetensors"
// Reads the bytes as a file of that kind. An Error is a refusal and comes back as its message; anything else is a bug,
// and is thrown on.
std::string read_as(const std::string& reader, std::string_view bytes);

}  // namespace sinter
