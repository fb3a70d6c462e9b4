// Structs of options whose fields are named once, in a function of this form:
//
//   template <class F> void for_each_field(F&& f) {
//     f("ctx", ctx, "N,..", "context length (default 256)", "Model");
//   }
//
// by name, type of the value, help, and the heading that the flag stands under (none: it is no flag). Flags, and what
// records and configuration files hold, follow from it. Empty lists and options were not given.
#pragma once
#include "lab/flags.h"
#include "system/json.h"

namespace sinter::lab {

template <class T> void read_option(const Json& j, const char* name, const std::string& where, std::vector<T>& out) {
  for (const Json& v : j.is_array() ? j : Json::array({j})) {
    bool fits = std::is_same_v<T, std::string> ? v.is_string() : v.is_number_integer();
    check(fits, "{}: \"{}\" is {}, which is not {}", where, name, v.dump(),
          std::is_same_v<T, std::string> ? "text" : "a whole number");
    out.push_back(v.get<T>());
  }
}
template <class T> void read_option(const Json& j, const char* name, const std::string& where, std::optional<T>& out) {
  constexpr bool text = std::is_same_v<T, std::string>, real = std::is_same_v<T, double>,
                 flag = std::is_same_v<T, bool>;
  bool fits = text ? j.is_string() : real ? j.is_number() : flag ? j.is_boolean() : j.is_number_integer();
  check(fits, "{}: \"{}\" is {}, which is not {}", where, name, j.dump(),
        text   ? "text"
        : real ? "a number"
        : flag ? "true or false"
               : "a whole number");
  out = j.get<T>();
}

bool given(const auto& field) {
  if constexpr (requires { field.has_value(); }) return field.has_value();
  else return !field.empty();
}

template <class Options> Options options_from_json(const Json& config, const std::string& where) {
  Options o;
  o.for_each_field([&](const char* name, auto& field, auto&&...) {
    if (config.contains(name) && !config[name].is_null()) read_option(config[name], name, where, field);
  });
  return o;
}

template <class Options> Json options_json(Options o) {
  Json j = Json::object();
  o.for_each_field([&](const char* name, auto& field, auto&&...) {
    if (!given(field)) return;
    if constexpr (requires { field.has_value(); }) j[name] = *field;
    else j[name] = field.size() == 1 ? Json(field[0]) : Json(field);
  });
  return j;
}

}  // namespace sinter::lab
