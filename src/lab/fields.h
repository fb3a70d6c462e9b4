// Structs that are written to records name their fields once, in a function of this form:
//
//   template <class Self, class F> static void fields(Self& self, F&& f) {
//     f("median_ms", self.median_ms);
//     f("tflops", self.tflops);
//   }
//
// What is written and read back, in which order and under which name, follows from it. An optional that is empty is
// left out.
#pragma once
#include <optional>

#include "system/json.h"

namespace sinter::lab {

template <class T>
concept HasFields = requires(const T& x) {
  T::fields(x, [](const char*, const auto&) {});
};

template <class T> void put(Json& j, const char* name, const T& value) { j[name] = value; }
template <class T> void put(Json& j, const char* name, const std::optional<T>& value) {
  if (value) j[name] = *value;
}

template <class T> void take(const Json& j, const char* name, T& value) { value = j.at(name).get<T>(); }
template <class T> void take(const Json& j, const char* name, std::optional<T>& value) {
  value = j.contains(name) ? std::optional<T>(j[name].get<T>()) : std::nullopt;
}

// Found by the JSON library, also for lists and maps of such structs.
template <HasFields T> void to_json(Json& j, const T& x) {
  j = Json::object();
  T::fields(x, [&](const char* name, const auto& value) { put(j, name, value); });
}
template <HasFields T> void from_json(const Json& j, T& x) {
  T::fields(x, [&](const char* name, auto& value) { take(j, name, value); });
}

}  // namespace sinter::lab
