// Reads a .safetensors file: header length, JSON header, raw data.
#pragma once
#include <map>
#include <string>

#include "support/values.h"

namespace sinter {

std::map<std::string, Tensor> read_safetensors(const std::string& path);  // on the CPU
std::string fixture_path(const std::string& file);                        // tests/fixtures/file

}  // namespace sinter
