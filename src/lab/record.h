// Records: what a command measured, in full.
#pragma once
#include <string>

#include "system/json.h"

namespace sinter::lab {

constexpr const char* record_schema = "sinter.record.v1";

Json new_record(const std::string& command, Json machine, Json config);  // with empty results
Json parse_json_file(const std::string& path);                           // refuses broken files, saying where
Json read_record(const std::string& path);                               // refuses what is not a record
bool is_record(const Json& j);
std::string message_of(const Json::exception& e);  // without the library's own prefix

}  // namespace sinter::lab
