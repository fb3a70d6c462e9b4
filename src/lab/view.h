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
};

View view_of(const Json& record);

// One per command; view_of chooses.
View bench_model_view(const Json& record);
std::optional<Table> preparation_table(const Json& bench_record);  // compiling and tuning, where there was any
View bench_attention_view(const Json& record);
View profile_view(const Json& record);
View memory_view(const Json& record);
View compile_view(const Json& record);
View precision_view(const Json& record);
View doctor_view(const Json& record);

}  // namespace sinter::lab
