#include "lab/memory/memory_json.h"

#include <map>

#include "core/range.h"

namespace sinter::lab {

Json categories_json(std::span<const int64_t, memory_category_count> bytes) {
  Json j = Json::object();
  for (int c = 0; c < memory_category_count; ++c)
    if (bytes[size_t(c)] > 0) j[name_of(MemoryCategory(c))] = bytes[size_t(c)];
  return j;
}

namespace {

// Interns what a column refers to by index.
class Ranges {
 public:
  int index(const RangeNode& n) {
    auto [it, added] = index_.emplace(n.id, 0);
    if (!added) return it->second;
    int parent = n.parent ? index(*n.parent) : -1;
    static const char* const kinds[] = {"module", "phase", "op"};
    list.push_back({{"name", n.name},
                    {"parent", parent},
                    {"kind", kinds[int(n.kind)]},
                    {"file", n.parent ? n.where.file : ""},
                    {"line", n.where.line}});
    return index_[n.id] = int(list.size()) - 1;
  }
  Json list = Json::array();

 private:
  std::map<uint32_t, int> index_;
};

}  // namespace

Json timeline_json(const plan::Walk& run, const RunConfig& c, const std::string& device, bool predicted) {
  int64_t origin = run.phases.front().begin_ns;
  auto us = [&](int64_t ns) { return double(ns - origin) / 1e3; };
  Json t = {{"title", c.text()},
            {"predicted", predicted},
            {"device", device},
            {"duration_us", us(run.phases.back().end_ns)},
            {"capacity", run.memory.memory_bytes > 0 ? Json(run.memory.memory_bytes) : Json()},
            {"clock", predicted ? "time of the dry run, which computes nothing: order and proportion, not duration"
                                : "host time at which memory was handed out and given back"}};
  t["categories"] = Json::array();
  for (int i = 0; i < memory_category_count; ++i) t["categories"].push_back(name_of(MemoryCategory(i)));
  t["phases"] = Json::array();
  for (const auto& p : run.phases)
    t["phases"].push_back({{"name", p.name}, {"begin", us(p.begin_ns)}, {"end", us(p.end_ns)}});

  Ranges ranges;
  ranges.index(range_of(0));
  std::map<std::string, int> tensors;
  std::vector<double> begin;
  std::vector<Json> end;
  std::vector<int64_t> bytes, address;
  std::vector<int> category, range, tensor;
  std::map<uint64_t, size_t> open;
  auto add = [&](double time, uint64_t at, int64_t size, MemoryCategory cat, uint32_t where, const TensorRef& what) {
    int description = -1;
    if (what.rank >= 0) description = tensors.emplace(describe(what), int(tensors.size())).first->second;
    open[at] = begin.size();
    begin.push_back(time);
    end.emplace_back();
    bytes.push_back(size);
    address.push_back(int64_t(at));
    category.push_back(int(cat));
    range.push_back(ranges.index(range_of(where)));
    tensor.push_back(description);
  };
  int64_t reserved = 0;
  for (const SegmentState& s : run.at_start) {
    reserved += s.bytes;
    for (const BlockState& b : s.blocks)
      if (b.used) add(0, b.address, b.bytes, b.category, b.range, b.tensor);
  }
  Json curve = Json::array({Json::array({0, reserved})});
  for (const MemoryEvent& e : run.memory.events) {
    double time = us(e.time_ns);
    if (e.action == MemoryEvent::alloc) {
      add(time, e.address, e.bytes, e.category, e.range, e.tensor);
    } else if (e.action == MemoryEvent::free) {
      if (auto it = open.find(e.address); it != open.end()) end[it->second] = time, open.erase(it);
    } else if (e.action != MemoryEvent::out_of_memory) {
      reserved += e.action == MemoryEvent::segment_alloc ? e.bytes : -e.bytes;
      curve.push_back(Json::array({time, reserved}));
    }
  }
  std::vector<std::string> names(tensors.size());
  for (const auto& [name, i] : tensors) names[size_t(i)] = name;
  t["ranges"] = ranges.list;
  t["tensors"] = names;
  t["begin"] = begin, t["end"] = end, t["bytes"] = bytes, t["address"] = address;
  t["category"] = category, t["range"] = range, t["tensor"] = tensor;
  t["reserved"] = curve;
  return t;
}

}  // namespace sinter::lab
