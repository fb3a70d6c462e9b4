// What a person sees of a record. Everything shown is made from the record alone, so that it can be shown again later.
#pragma once
#include <optional>

#include "lab/plot.h"
#include "lab/table.h"
#include "system/json.h"

namespace sinter::lab {

struct View {
  std::vector<std::string> preamble;  // lines above the tables
  std::vector<Table> tables;
  std::optional<Chart> chart;      // none where there is nothing to see
  const Json* timeline = nullptr;  // of memory, inside the record; takes the chart's place
  struct Picture {
    std::string title, svg;
  };
  std::optional<Picture> picture = {};  // takes the chart's place too
};

View view_of(const Json& record);  // by the command that wrote it

}  // namespace sinter::lab
