// What 16-bit arithmetic does to sums, to the types of a network under autocast, and to normalisation.
#pragma once
#include "lab/output.h"
#include "train/run_config.h"

namespace sinter::lab {

int precision_experiment(DeviceType device, uint64_t seed, const OutputOptions& output);

// Each returns rows of the record's results.
Json accumulation_rows(DeviceType device);
Json autocast_rows(DeviceType device, DType lower, uint64_t seed);
Json norm_rows(DeviceType device, DType type, uint64_t seed);

View precision_view(const Json& record);

}  // namespace sinter::lab
