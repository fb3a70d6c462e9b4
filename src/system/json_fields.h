// JSON files that people write: every field is known beforehand, and a complaint names file, line, field and reason.
#pragma once
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "system/json.h"

namespace sinter {

class JsonFields {
 public:
  explicit JsonFields(const std::string& path);
  // What a program brings with it, in a file's place.
  static JsonFields of_text(const std::string& name, const std::string& text);

  bool has(const std::string& field);
  std::string text(const std::string& field);
  std::string text(const std::string& field, const std::string& otherwise);
  // Within [low, high], or it is refused.
  double number(const std::string& field, double low, double high);
  double number(const std::string& field, double low, double high, double otherwise);
  int64_t whole(const std::string& field, int64_t low, int64_t high);
  int64_t whole(const std::string& field, int64_t low, int64_t high, int64_t otherwise);
  bool flag(const std::string& field, bool otherwise);
  JsonFields object(const std::string& field);
  std::vector<JsonFields> objects(const std::string& field);                        // a list of them
  std::vector<std::pair<std::string, JsonFields>> named(const std::string& field);  // an object whose fields are such
  std::vector<double> numbers(const std::string& field, double low, double high);

  void finish() const;  // refuses fields that nobody asked for, naming those there are
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const;  // ErrorKind::usage

 private:
  struct Document;
  JsonFields(std::shared_ptr<Document> document, const Json& value, std::vector<std::string> path);
  const Json& at(const std::string& field);

  std::shared_ptr<Document> document_;
  const Json* value_;
  std::vector<std::string> path_, asked_;
};

}  // namespace sinter
