#include "system/json_fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <sstream>

#include "core/check.h"

namespace sinter {

struct JsonFields::Document {
  std::string name, text;
  Json value;

  // The parser forgets lines. Keys are looked for one after the other, which finds the right one unless an earlier
  // value holds the same text.
  size_t line_of(const std::vector<std::string>& path, const std::string& field) const {
    size_t at = 0;
    auto go_to = [&](const std::string& key) {
      size_t found = text.find('"' + key + '"', at);
      if (found != std::string::npos) at = found;
    };
    for (const std::string& key : path) go_to(key);
    go_to(field);
    return size_t(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n')) + 1;
  }
};

JsonFields::JsonFields(std::shared_ptr<Document> document, const Json& value, std::vector<std::string> path)
    : document_(std::move(document)), value_(&value), path_(std::move(path)) {}

JsonFields::JsonFields(const std::string& path) : document_(std::make_shared<Document>()) {
  document_->name = path;
  document_->value = parse_json_file(path);
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  document_->text = all.str();
  value_ = &document_->value;
  check(value_->is_object(), "{}, line 1: a list or a value stands where an object {{…}} was expected", path);
}

JsonFields JsonFields::of_text(const std::string& name, const std::string& text) {
  auto document = std::make_shared<Document>();
  document->name = name, document->text = text, document->value = Json::parse(text);
  return {document, document->value, {}};
}

void JsonFields::refuse(const std::string& field, const std::string& reason) const {
  std::vector<std::string> names = path_;
  if (!field.empty()) names.push_back(field);
  fail_with(ErrorKind::usage, "{}, line {}, {}: {}", document_->name, document_->line_of(path_, field),
            fmt::join(names, "."), reason);
}

bool JsonFields::has(const std::string& field) {
  asked_.push_back(field);
  return value_->contains(field) && !(*value_)[field].is_null();
}

const Json& JsonFields::at(const std::string& field) {
  if (!has(field)) refuse(field, "is missing; add it");
  return (*value_)[field];
}

std::string JsonFields::text(const std::string& field) {
  const Json& v = at(field);
  if (!v.is_string() || v.get_ref<const std::string&>().empty()) refuse(field, v.dump() + " is not text");
  return v;
}
std::string JsonFields::text(const std::string& field, const std::string& otherwise) {
  return has(field) ? text(field) : otherwise;
}

double JsonFields::number(const std::string& field, double low, double high) {
  const Json& v = at(field);
  if (!v.is_number()) refuse(field, v.dump() + " is not a number");
  double x = v;
  if (!(x >= low && x <= high)) refuse(field, fmt::format("{} is not between {:g} and {:g}", v.dump(), low, high));
  return x;
}
double JsonFields::number(const std::string& field, double low, double high, double otherwise) {
  return has(field) ? number(field, low, high) : otherwise;
}

int64_t JsonFields::whole(const std::string& field, int64_t low, int64_t high) {
  double x = number(field, double(low), double(high));
  if (x != std::floor(x)) refuse(field, fmt::format("{} is not a whole number", x));
  return int64_t(x);
}
int64_t JsonFields::whole(const std::string& field, int64_t low, int64_t high, int64_t otherwise) {
  return has(field) ? whole(field, low, high) : otherwise;
}

bool JsonFields::flag(const std::string& field, bool otherwise) {
  if (!has(field)) return otherwise;
  const Json& v = (*value_)[field];
  if (!v.is_boolean()) refuse(field, v.dump() + " is neither true nor false");
  return v;
}

JsonFields JsonFields::object(const std::string& field) {
  const Json& v = at(field);
  if (!v.is_object()) refuse(field, "is not an object {…}");
  std::vector<std::string> path = path_;
  path.push_back(field);
  return {document_, v, path};
}

std::vector<JsonFields> JsonFields::objects(const std::string& field) {
  const Json& v = at(field);
  if (!v.is_array()) refuse(field, "is not a list […]");
  std::vector<JsonFields> all;
  for (size_t i = 0; i < v.size(); ++i) {
    std::vector<std::string> path = path_;
    path.push_back(field);
    path.push_back(std::to_string(i));
    if (!v[i].is_object()) refuse(field, fmt::format("entry {} is not an object {{…}}", i));
    all.push_back({document_, v[i], path});
  }
  return all;
}

std::vector<std::pair<std::string, JsonFields>> JsonFields::named(const std::string& field) {
  JsonFields parent = object(field);
  std::vector<std::pair<std::string, JsonFields>> all;
  for (const auto& [name, value] : parent.value_->items()) all.emplace_back(name, parent.object(name));
  return all;
}

std::vector<double> JsonFields::numbers(const std::string& field, double low, double high) {
  const Json& v = at(field);
  if (!v.is_array()) refuse(field, "is not a list […]");
  std::vector<double> all;
  for (const Json& x : v) {
    if (!x.is_number() || !(double(x) >= low && double(x) <= high))
      refuse(field, fmt::format("{} is not a number between {:g} and {:g}", x.dump(), low, high));
    all.push_back(x);
  }
  return all;
}

void JsonFields::finish() const {
  for (const auto& [name, value] : value_->items())
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end())
      refuse(name,
             fmt::format("is unknown here; there {} {}", asked_.size() == 1 ? "is" : "are", fmt::join(asked_, ", ")));
}

}  // namespace sinter
