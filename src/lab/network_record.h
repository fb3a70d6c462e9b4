// A network from what bench allreduce measured.
#pragma once
#include "plan/network.h"

namespace sinter::lab {

// As plan::network_named; also a record of bench allreduce, of which the fp32 curves of a backend are taken, of its
// first if none is named. Other collectives than all-reduces are then as fast as the largest of those, and cost what
// the smallest cost beside their bytes.
plan::Network network_or_record(const std::string& name_or_file, const std::string& backend = "");

}  // namespace sinter::lab
