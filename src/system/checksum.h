// What tells bytes that came back from a disk from those that went there: XXH3, 64 bits. Not against who means harm.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sinter {

uint64_t checksum(std::string_view bytes);
std::string checksum_text(uint64_t checksum);  // 16 hexadecimal digits

}  // namespace sinter
