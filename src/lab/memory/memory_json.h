// What is known of memory, as records have it.
#pragma once
#include <span>

#include "plan/walk.h"
#include "system/json.h"

namespace sinter::lab {

Json categories_json(std::span<const int64_t, memory_category_count> bytes);  // category -> bytes, where there are any
// Note [Timeline] in memory_plot.h
Json timeline_json(const plan::Walk& run, const RunConfig& config, const std::string& device, bool predicted);

}  // namespace sinter::lab
