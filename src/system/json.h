// Records keep the order in which their fields were written, for the eyes of people.
#pragma once
#include <nlohmann/json.hpp>

namespace sinter {

using Json = nlohmann::ordered_json;

}  // namespace sinter
