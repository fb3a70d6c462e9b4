# The laboratory and the command line, as objects of their own: nearly every file reads fmt's and the JSON library's
# headers, which take longer to compile than the rest of it and are therefore precompiled.

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/lab/*.cpp ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/src/cli/main.cpp)
add_library(sinter_laboratory OBJECT ${sources})
target_link_libraries(sinter_laboratory PRIVATE fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11)
target_precompile_headers(sinter_laboratory PRIVATE <algorithm> <functional> <map> <memory> <optional> <string> <vector>
                          <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
target_sources(sinter_lib PRIVATE $<TARGET_OBJECTS:sinter_laboratory>)

# The experiments: every folder of src/lab that holds a command.cpp. The list is written here, so that adding an
# experiment is adding a folder.
file(GLOB commands CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/lab ${PROJECT_SOURCE_DIR}/src/lab/*/command.cpp)
set(declared "")
set(added "")
foreach(file IN LISTS commands)
  get_filename_component(folder ${file} DIRECTORY)
  string(APPEND declared "std::vector<Command> ${folder}_commands();\n")
  string(APPEND added "    for (Command c : ${folder}_commands()) all.push_back(std::move(c));\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/experiments.cpp @ONLY CONTENT [[
// Written by the build (cmake/SinterLaboratory.cmake).
#include <algorithm>

#include "lab/command.h"

namespace sinter::lab {

@declared@
const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> all;
@added@
    std::sort(all.begin(), all.end(), [](const Command& a, const Command& b) { return a.name < b.name; });
    return all;
  }();
  return all;
}

}  // namespace sinter::lab
]])
target_sources(sinter_laboratory PRIVATE ${PROJECT_BINARY_DIR}/generated/experiments.cpp)
