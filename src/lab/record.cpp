#include "lab/record.h"

#include "core/check.h"

namespace sinter::lab {

Json new_record(const std::string& command, Json machine, Json config) {
  return {{"schema", record_schema},
          {"command", command},
          {"machine", std::move(machine)},
          {"config", std::move(config)},
          {"results", Json::array()}};
}

bool is_record(const Json& j) { return j.is_object() && j.contains("schema"); }

Json read_record(const std::string& path) { return checked_record(parse_json_file(path), path); }

Json checked_record(Json j, const std::string& path) {
  check(is_record(j), "{}: not a sinter record (no \"schema\"); records are written with --json FILE", path);
  check(j["schema"] == record_schema, "{}: schema {}, but this version reads \"{}\"", path, j["schema"].dump(),
        record_schema);
  for (const char* field : {"command", "machine", "config", "results"})
    check(j.contains(field), "{}: the record has no \"{}\"", path, field);
  check(j["command"].is_string() && j["results"].is_array(), "{}: \"command\" must be text and \"results\" a list",
        path);
  return j;
}

}  // namespace sinter::lab
