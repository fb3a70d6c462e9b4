// What this machine has, what is missing and what that disables, and how fast it is.
#pragma once
#include "lab/output.h"

namespace sinter::lab {

struct DoctorOptions {
  bool remeasure = false;
  std::string python = "python3";
};
int doctor(const DoctorOptions& options, const OutputOptions& output);
View doctor_view(const Json& record);

}  // namespace sinter::lab
