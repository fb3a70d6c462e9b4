// Numbers as people read them. Memory in MiB and GiB, bandwidth in 10⁹ bytes per second.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sinter {

std::string bytes_text(double bytes);  // "812 MiB", "12.3 GiB"
std::string significant(double x,
                        int digits);        // "0.0123", "12.3", "1234": never fewer digits than the integer part has
std::string grouped(int64_t n);             // "128,625,408"
std::string percent_text(double fraction);  // "41.3 %"

struct Statistics {
  double mean = 0, std = 0, median = 0;  // std of the sample (n - 1); 0 for a single value
};
Statistics statistics_of(std::vector<double> values);

}  // namespace sinter
