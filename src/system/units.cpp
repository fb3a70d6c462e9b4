#include "system/units.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace sinter {

std::string bytes_text(double bytes) {
  constexpr double kib = 1024, mib = kib * 1024, gib = mib * 1024;
  if (bytes < mib) return fmt::format("{} KiB", significant(bytes / kib, 3));
  return bytes < gib ? fmt::format("{} MiB", significant(bytes / mib, 3))
                     : fmt::format("{} GiB", significant(bytes / gib, 3));
}

std::string significant(double x, int digits) {
  if (!std::isfinite(x)) return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (x == 0) return "0";
  int magnitude = int(std::floor(std::log10(std::abs(x)))) + 1;  // digits before the point
  if (magnitude < -3 || magnitude > 9) return fmt::format("{:.{}e}", x, digits - 1);
  return fmt::format("{:.{}f}", x, std::max(0, digits - magnitude));
}

std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = int64_t(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) s.insert(size_t(i), 1, ',');
  return s;
}

std::string percent_text(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

Statistics statistics_of(std::vector<double> v) {
  Statistics s;
  if (v.empty()) return s;
  double n = double(v.size());
  for (double x : v) s.mean += x / n;
  for (double x : v) s.std += (x - s.mean) * (x - s.mean);
  s.std = v.size() > 1 ? std::sqrt(s.std / (n - 1)) : 0;
  std::sort(v.begin(), v.end());
  size_t half = v.size() / 2;
  s.median = v.size() % 2 ? v[half] : 0.5 * (v[half - 1] + v[half]);
  return s;
}

}  // namespace sinter
