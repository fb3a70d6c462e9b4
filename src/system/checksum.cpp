#include "system/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace sinter {

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

}  // namespace sinter
