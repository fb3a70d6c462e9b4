#include "lab/profile/result.h"

#include <algorithm>
#include <set>

#include "profile/kernel_table.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

using Activities = std::vector<const Activity*>;
constexpr const char* unattributed_name = "(unattributed)";

const RangeNode& place(const Activity& a) { return range_of(a.range); }
std::string phase_of(const Activity& a) {
  const RangeNode* p = place(a).phase();
  return p ? p->name : "";
}
// The module an activity ran for: its op belongs to the row of the module.
const RangeNode& module_of(const RangeNode& n) { return n.kind == RangeKind::op ? *n.parent : n; }

std::vector<KernelRow> kernel_rows(const Activities& activities) {
  std::vector<KernelRow> rows;
  double all = total_ns(activities);
  for (const KernelStats& k : kernel_table(activities))
    rows.push_back({all > 0 ? k.total_ns / all : 0, k.total_ns, k.instances, k.average_ns, k.median_ns, k.min_ns,
                    k.max_ns, k.std_ns, k.name});
  return rows;
}

class Analysis {
 public:
  explicit Analysis(const Profile& p) : p_(p), passes_(double(std::max<int64_t>(p.passes, 1))) {}

  bool is_product(const Activity& a) const {
    auto it = p_.ops.find(a.range);
    return it != p_.ops.end() && it->second.executed_flops > 0;
  }
  double ms(const Activities& a) const { return total_ns(a) / 1e6 / passes_; }
  Activities where(const std::function<bool(const Activity&)>& wanted) const { return select(p_.trace.device, wanted); }

  PhaseProfile phase(const std::string& name, const Activities& activities) const {
    double all = total_ns(activities), products = 0;
    for (const Activity* a : activities) products += is_product(*a) ? double(a->duration_ns()) : 0;
    PhaseProfile p{name, ms(activities), double(activities.size()) / passes_, all > 0 ? products / all : 0, {}, {}, {}};
    p.kernels = kernel_rows(activities);
    if (!p.kernels.empty())
      p.top = {p.kernels[0].name, double(p.kernels[0].instances) / passes_, p.kernels[0].time_share};
    for (const KernelStats& k : kernel_table(select_not_products(activities)))
      if (k.total_ns > 0.01 * all) p.others.push_back({k.name, double(k.instances) / passes_, k.total_ns / all});
    return p;
  }

  std::vector<PhaseProfile> phases() const {
    std::vector<PhaseProfile> list;
    for (int i = 0; i < phase_count; ++i) {
      const char* name = name_of(Phase(i));
      Activities a = where([&](const Activity& x) { return phase_of(x) == name; });
      if (!a.empty()) list.push_back(phase(name, a));
    }
    if (list.size() > 1) list.push_back(phase("whole pass", where([](const Activity&) { return true; })));
    return list;
  }

  std::vector<RangeRow> ranges() const {
    std::map<std::string, Activities> by_range;
    for (const Activity& a : p_.trace.device)
      by_range[a.range ? general_path(module_of(place(a))) : unattributed_name].push_back(&a);
    double all = total_ns(where([](const Activity&) { return true; }));
    std::vector<RangeRow> rows;
    for (auto& [path, activities] : by_range)
      rows.push_back({path, ms(activities), all > 0 ? total_ns(activities) / all : 0,
                      double(activities.size()) / passes_, kernel_table(activities)[0].name});
    std::sort(rows.begin(), rows.end(), [](const RangeRow& a, const RangeRow& b) { return a.ms > b.ms; });
    return rows;
  }

  // Softmax against the products inside attention, in time and in FLOPs.
  Json attention() const {
    Json result = Json::object();
    for (const char* phase : {"forward", "backward"}) {
      double time[2] = {}, flops[2] = {};
      auto part_of = [&](const RangeNode& n) {  // 0: softmax, 1: a product, -1: something else
        if (!n.phase() || n.phase()->name != phase) return -1;
        std::string module = module_of(n).path();
        if (matches(module, "*/attn/softmax")) return 0;
        return matches(module, "*/attn/scores") || matches(module, "*/attn/value") ? 1 : -1;
      };
      for (const Activity& a : p_.trace.device)
        if (int part = part_of(place(a)); part >= 0) time[part] += double(a.duration_ns()) / 1e6 / passes_;
      for (const auto& [id, cost] : p_.ops)
        if (int part = part_of(range_of(id)); part >= 0) flops[part] += cost.executed() / passes_;
      if (time[1] == 0) continue;
      result[phase] = AttentionParts{time[0], time[1], flops[0], flops[1]};
    }
    return result;
  }

  // Each op's rate, and how near it comes to what the slower of its two limits allows.
  std::vector<OpRow> ops(double product_peak, double copy_peak) const {
    struct Sum {
      OpCost cost;
      double ns = 0;
    };
    std::map<std::string, Sum> sums;
    for (const auto& [id, c] : p_.ops) {
      sums[range_of(id).name].cost.add(c);
    }
    for (const Activity& a : p_.trace.device)
      if (place(a).kind == RangeKind::op) sums[place(a).name].ns += double(a.duration_ns());
    std::vector<OpRow> rows;
    for (auto& [name, s] : sums) {
      if (s.ns == 0) continue;
      double seconds = s.ns / 1e9, by_flops = product_peak > 0 ? s.cost.executed_flops / product_peak : 0,
             by_bytes = copy_peak > 0 ? s.cost.bytes / copy_peak : 0;
      OpRow row;
      row.op = name;
      row.calls = double(s.cost.calls) / passes_;
      row.ms = s.ns / 1e6 / passes_;
      row.flops = s.cost.executed() / passes_;
      row.bytes = s.cost.bytes / passes_;
      row.tflops = s.cost.executed() / seconds / 1e12;
      row.gbs = s.cost.bytes / seconds / 1e9;
      if (product_peak > 0 && copy_peak > 0) row.bound = by_flops > by_bytes ? "compute" : "memory";
      row.of_roofline = std::max(by_flops, by_bytes) / seconds;
      rows.push_back(row);
    }
    std::sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.ms > b.ms; });
    return rows;
  }

  // Busy and idle time pass by pass, against what device events say.
  DeviceTimeResult device() const {
    DeviceTime sum;
    for (const auto& [begin, end] : p_.trace.steps) {
      std::vector<Activity> pass;
      for (const Activity& a : p_.trace.device)
        if (a.begin_ns >= begin && a.begin_ns < end) pass.push_back(a);
      DeviceTime t = device_time(pass);
      sum.busy_ns += t.busy_ns, sum.gap_ns += t.gap_ns, sum.gaps += t.gaps, sum.span_ns += t.span_ns;
      sum.longest_gap_ns = std::max(sum.longest_gap_ns, t.longest_gap_ns);
    }
    double between = 0, launch_ns = 0;
    for (double ms : p_.device_ms) between += ms;
    // A launch is the call that something on the device came of: one, even where the runtime's call contains the
    // driver's.
    std::set<uint32_t> started;
    for (const Activity& a : p_.trace.device) started.insert(a.correlation);
    int64_t launches = 0;
    for (const Activity& c : p_.trace.calls)
      if (started.erase(c.correlation)) ++launches, launch_ns += double(c.duration_ns());
    DeviceTimeResult r;
    r.between_events_ms = between / passes_;
    r.busy_ms = double(sum.busy_ns) / 1e6 / passes_;
    r.idle_ms = double(sum.gap_ns) / 1e6 / passes_;
    r.gaps = double(sum.gaps) / passes_;
    r.longest_gap_ms = double(sum.longest_gap_ns) / 1e6;
    if (between > 0) r.busy_and_idle_to_events = double(sum.span_ns) / 1e6 / between;
    if (launches > 0) {
      r.launch_calls = double(launches) / passes_;
      r.launch_ms = launch_ns / 1e6 / passes_;
      r.launch_us_each = launch_ns / 1e3 / double(launches);
    }
    return r;
  }

  Attribution attribution() const {
    Attribution r;
    r.activities = int64_t(p_.trace.device.size());
    for (const Activity& a : p_.trace.device) r.unattributed += a.range == 0;
    r.dropped = p_.dropped;
    r.total_ms = ms(where([](const Activity&) { return true; }));
    for (const RangeRow& row : ranges())
      if (row.range != unattributed_name) r.by_range_ms += row.ms;
    return r;
  }

 private:
  Activities select_not_products(const Activities& from) const {
    Activities rest;
    for (const Activity* a : from)
      if (!is_product(*a)) rest.push_back(a);
    return rest;
  }

  const Profile& p_;
  double passes_;
};

std::vector<std::string> lost_answers(const std::string& source) {
  if (source != "events") return {};
  return {"kernel names and how many kernels an op launches (an op is one row)", "launch overhead",
          "exact idle gaps: the events stand between the ops and are counted with them",
          "copies and fills outside ops"};
}

}  // namespace

ProfileResult profile_result(const Json& config, const Profile& p, const std::string& pattern, const Roofline& roofline,
                             const plan::Floor& floor) {
  Analysis a(p);
  ProfileResult r;
  r.config = config;
  r.profiler = {p.source, p.why_not, lost_answers(p.source)};
  r.passes = p.passes;
  r.wall_ms = statistics_of(p.plain_ms).median;
  r.plain_samples_ms = p.plain_ms;
  r.profiled_samples_ms = p.profiled_ms;
  r.profiled_wall_ms = statistics_of(p.profiled_ms).median;
  r.profiled_mean_ms = statistics_of(p.profiled_ms).mean;
  r.device_time = a.device();
  r.parts = time_parts(p, floor);
  if (floor.ms() > 0) r.floor_ms = floor.ms(), r.floor_multiple = r.wall_ms / floor.ms();
  r.attribution = a.attribution();
  r.phases = a.phases();
  r.attention_parts = a.attention();
  r.ranges = a.ranges();
  r.peak_tflops = roofline.flops / 1e12;
  r.peak_gbs = roofline.bytes / 1e9;
  r.ops = a.ops(roofline.flops, roofline.bytes);
  Overlap o = communication_overlap(p.trace.device);
  if (o.communication_ns > 0)
    r.communication = {double(o.communication_ns) / 1e6 / double(p.passes),
                       double(o.overlapped_ns) / double(o.communication_ns)};
  if (!pattern.empty()) {
    auto wanted = [&](const Activity& x) { return lies_in(range_of(x.range), pattern); };
    r.selected = a.phase(pattern, a.where(wanted));
  }
  return r;
}

}  // namespace sinter::lab
