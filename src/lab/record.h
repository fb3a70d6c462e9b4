// Records: what a command measured, in full.
#pragma once
#include <string>

#include "system/json.h"

namespace sinter::lab {

constexpr const char* record_schema = "sinter.record.v1";

Json new_record(const std::string& command, Json machine, Json config);  // with empty results
Json read_record(const std::string& path);                               // refuses what is not a record
Json checked_record(Json j, const std::string& path);                    // the same, of what path held
bool is_record(const Json& j);

}  // namespace sinter::lab
