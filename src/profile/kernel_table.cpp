#include "profile/kernel_table.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>
#include <map>

namespace sinter {
namespace {

KernelStats stats_of(const std::string& name, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  KernelStats s;
  s.name = name;
  s.instances = int64_t(ns.size());
  for (double x : ns) s.total_ns += x;
  s.average_ns = s.total_ns / double(ns.size());
  size_t middle = ns.size() / 2;
  s.median_ns = ns.size() % 2 ? ns[middle] : (ns[middle - 1] + ns[middle]) / 2;
  s.min_ns = ns.front();
  s.max_ns = ns.back();
  double squares = 0;
  for (double x : ns) squares += (x - s.average_ns) * (x - s.average_ns);
  s.std_ns = ns.size() > 1 ? std::sqrt(squares / double(ns.size() - 1)) : 0;
  return s;
}

void erase_all(std::string& text, const std::string& part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
}

// Where the argument list begins: the first "(" outside angle brackets, but for "(anonymous namespace)".
size_t argument_list(const std::string& text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0 && text.compare(i, 10, "(anonymous") != 0) return i;
  }
  return text.size();
}

}  // namespace

std::vector<KernelStats> kernel_table(const std::vector<const Activity*>& activities) {
  std::map<std::string, std::vector<double>> by_name;
  for (const Activity* a : activities) by_name[a->name].push_back(double(a->duration_ns()));
  std::vector<KernelStats> table;
  for (auto& [name, ns] : by_name) table.push_back(stats_of(name, std::move(ns)));
  std::sort(table.begin(), table.end(), [](auto& a, auto& b) { return a.total_ns > b.total_ns; });
  return table;
}

double total_ns(const std::vector<const Activity*>& activities) {
  double sum = 0;
  for (const Activity* a : activities) sum += double(a->duration_ns());
  return sum;
}

std::vector<const Activity*> select(const std::vector<Activity>& activities,
                                    const std::function<bool(const Activity&)>& wanted) {
  std::vector<const Activity*> selected;
  for (const Activity& a : activities)
    if (wanted(a)) selected.push_back(&a);
  return selected;
}

std::string short_name(const std::string& kernel) {
  std::string s = kernel.substr(0, argument_list(kernel));
  if (s.compare(0, 5, "void ") == 0) s.erase(0, 5);
  for (const char* part : {"sinter::cuda::", "(anonymous namespace)::", "<unnamed>::"}) erase_all(s, part);
  return s;
}

std::string general_path(const RangeNode& range) {
  if (!range.parent) return "";
  std::string before = general_path(*range.parent), name = range.name;
  size_t dot = name.rfind('.');
  bool numbered = dot != std::string::npos && dot + 1 < name.size() &&
                  name.find_first_not_of("0123456789", dot + 1) == std::string::npos;
  if (numbered) name = name.substr(0, dot + 1) + "*";
  return before.empty() ? name : before + "/" + name;
}

bool matches(const std::string& path, const std::string& pattern) {
  if (pattern.find_first_of("*?") == std::string::npos) return path.find(pattern) != std::string::npos;
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

bool lies_in(const RangeNode& range, const std::string& pattern) {
  for (const RangeNode* n = &range; n->parent; n = n->parent)
    if (matches(n->path(), pattern)) return true;
  return false;
}

}  // namespace sinter
