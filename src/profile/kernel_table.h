// Many executions of the same kernels, summed up as nsys does (cuda_gpu_kern_sum).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/activity.h"
#include "core/range.h"

namespace sinter {

struct KernelStats {
  std::string name;
  int64_t instances = 0;
  double total_ns = 0, average_ns = 0, median_ns = 0, min_ns = 0, max_ns = 0, std_ns = 0;
};

// By name, the largest total first.
std::vector<KernelStats> kernel_table(const std::vector<const Activity*>& activities);
double total_ns(const std::vector<const Activity*>& activities);
std::vector<const Activity*> select(const std::vector<Activity>& activities,
                                    const std::function<bool(const Activity&)>& wanted);

// A kernel's name without return type, arguments and our namespaces.
std::string short_name(const std::string& kernel);

// A path with the numbers of layers taken out: "backward/layers.*/attn/softmax".
std::string general_path(const RangeNode& range);

// The path contains the text, or, with * and ?, matches all of it.
bool matches(const std::string& path, const std::string& pattern);
// --range: the range, or one that it lies in, matches.
bool lies_in(const RangeNode& range, const std::string& pattern);

}  // namespace sinter
