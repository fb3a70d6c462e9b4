// A network from what bench allreduce measured.
#pragma once
#include "plan/network.h"

namespace sinter::lab {

// As plan::network_named; also a record of bench allreduce, of whose first backend the fp32 curves are taken. Other
// collectives than all-reduces are then as fast as the largest of those.
plan::Network network_or_record(const std::string& name_or_file);

}  // namespace sinter::lab
