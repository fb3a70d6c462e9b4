#include "lab/record.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/check.h"

namespace sinter::lab {

Json new_record(const std::string& command, Json machine, Json config) {
  return {{"schema", record_schema},
          {"command", command},
          {"machine", std::move(machine)},
          {"config", std::move(config)},
          {"results", Json::array()}};
}

Json parse_json_file(const std::string& path) {
  check(!std::filesystem::is_directory(path), "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  check(bool(in), "{}: cannot be opened; check the path", path);
  std::stringstream text;
  text << in.rdbuf();
  try {
    return Json::parse(text.str());
  } catch (const Json::parse_error& e) {
    fail_with(ErrorKind::usage, "{}: not valid JSON: {}", path, message_of(e));
  }
}

std::string message_of(const Json::exception& e) {
  std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: …"
  size_t start = what.find("] ");
  return start == std::string::npos ? what : what.substr(start + 2);
}

bool is_record(const Json& j) { return j.is_object() && j.contains("schema"); }

Json read_record(const std::string& path) {
  Json j = parse_json_file(path);
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
