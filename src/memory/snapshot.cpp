// Note [A snapshot others read]: the file is what torch.cuda.memory._snapshot() returns. What its readers need beyond
// the fields' names:
//
// - Allocator State History goes backwards through the events from the segments at the end, so both must be of the same
//   moment, and blocks must tile their segments: addresses are summed up, not read.
// - A free is two events, free_requested and free_completed, which the viewer makes one if nothing stands between them.
// - Sizes of allocations are those asked for; a block's rounding shows in the segments: requested_size against size.
// - Once any event has a category, the viewer throws unless some event's is "unknown" (it misspells a name on the path
//   that would add it). The closing event "snapshot" has that category. Segments have none: they hold all kinds.
// - Frames whose names look like Python's or libc's insides are dropped; such a name gets a blank inside, see shown().
// - A pickle is unpickled by the viewer's own code: protocol 2, a few opcodes, lists in pieces that can be a call's
//   arguments. Frames repeat in nearly every event and are written once.
#include "memory/snapshot.h"

#include <unordered_map>
#include <utility>

#include "core/clock.h"
#include "core/json_string.h"
#include "core/range.h"

namespace sinter {
namespace {

// Where the description of a snapshot goes: one description, two formats.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void begin_dict() = 0;
  virtual void key(const char* name) = 0;
  virtual void end_dict() = 0;
  virtual void begin_list() = 0;
  virtual void next_item(size_t index) = 0;  // before each
  virtual void end_list(size_t count) = 0;
  virtual void integer(int64_t value) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void boolean(bool value) = 0;
  virtual void pair(int64_t first, int64_t second) = 0;

  void field(const char* name, int64_t value) { key(name), integer(value); }
  void field(const char* name, int value) { field(name, int64_t(value)); }
  void field(const char* name, uint64_t value) { field(name, int64_t(value)); }
  void field(const char* name, void* value) { field(name, int64_t(reinterpret_cast<uintptr_t>(value))); }
  void field(const char* name, bool value) { key(name), boolean(value); }
  void field(const char* name, std::string_view value) { key(name), text(value); }
  void field(const char* name, const char* value) { field(name, std::string_view(value)); }

  template <class Range, class Write> void list(const Range& items, Write write) {
    size_t n = 0;
    begin_list();
    for (const auto& item : items) next_item(n++), write(item);
    end_list(n);
  }
  // A value that occurs often, known by a number.
  template <class Write> void shared(uint64_t id, Write write) {
    if (repeat(id)) return;
    size_t from = out_.size();
    write();
    remember(id, from);
  }

  std::string out_;

 private:
  virtual bool repeat(uint64_t id) = 0;  // false: it was never written
  virtual void remember(uint64_t id, size_t from) = 0;
};

class JsonWriter final : public Writer {
 public:
  void begin_dict() override { out_ += '{', first_ = true; }
  void key(const char* name) override {
    if (!std::exchange(first_, false)) out_ += ", ";
    append_json_string(out_, name);
    out_ += ": ";
  }
  void end_dict() override { out_ += '}', first_ = false; }
  void begin_list() override { out_ += '['; }
  void next_item(size_t index) override {
    if (index) out_ += ",\n";
  }
  void end_list(size_t) override { out_ += ']'; }
  void integer(int64_t value) override { fmt::format_to(std::back_inserter(out_), "{}", value); }
  void text(std::string_view value) override { append_json_string(out_, value); }
  void boolean(bool value) override { out_ += value ? "true" : "false"; }
  void pair(int64_t first, int64_t second) override { out_ += fmt::format("[{}, {}]", first, second); }

 private:
  bool repeat(uint64_t id) override {
    auto it = written_.find(id);
    if (it == written_.end()) return false;
    out_ += it->second;
    return true;
  }
  void remember(uint64_t id, size_t from) override { written_[id] = out_.substr(from); }

  bool first_ = true;  // in the dictionary that is open
  std::unordered_map<uint64_t, std::string> written_;
};

// Protocol 2. Keys, short texts and shared values are stored once and fetched by their number.
class PickleWriter final : public Writer {
 public:
  PickleWriter() { out_ = "\x80\x02"; }
  std::string finish() { return std::move(out_ += '.'); }

  void begin_dict() override { out_ += "}("; }
  void key(const char* name) override { text(name); }
  void end_dict() override { out_ += 'u'; }
  void begin_list() override { out_ += ']'; }
  void next_item(size_t index) override {
    if (index % piece == 0) out_ += index ? "e(" : "(";
  }
  void end_list(size_t count) override {
    if (count) out_ += 'e';
  }
  void integer(int64_t value) override {
    if (value == int32_t(value)) return opcode_with('J', uint64_t(value), 4);
    out_ += '\x8a';
    opcode_with(8, uint64_t(value), 8);
  }
  void text(std::string_view value) override {
    auto [it, added] = texts_.try_emplace(std::string(value), next_);
    if (!added) return fetch(it->second);
    opcode_with('X', value.size(), 4);
    out_ += value;
    store();
  }
  void boolean(bool value) override { out_ += value ? '\x88' : '\x89'; }
  void pair(int64_t first, int64_t second) override {
    integer(first), integer(second);
    out_ += '\x86';
  }

 private:
  static constexpr size_t piece = 1000;

  void opcode_with(char opcode, uint64_t value, int bytes) {
    out_ += opcode;
    for (int i = 0; i < bytes; ++i) out_ += char(value >> (8 * i));
  }
  void numbered(char short_form, char long_form, uint32_t number) {
    number < 256 ? opcode_with(short_form, number, 1) : opcode_with(long_form, number, 4);
  }
  void store() { numbered('q', 'r', next_++); }
  void fetch(uint32_t number) { numbered('h', 'j', number); }

  bool repeat(uint64_t id) override {
    auto it = values_.find(id);
    if (it == values_.end()) return false;
    fetch(it->second);
    return true;
  }
  void remember(uint64_t id, size_t) override {
    values_[id] = next_;
    store();
  }

  uint32_t next_ = 0;
  std::unordered_map<std::string, uint32_t> texts_;
  std::unordered_map<uint64_t, uint32_t> values_;
};

// The viewer drops frames with these parts; a blank inside keeps ours.
std::string shown(std::string text, std::initializer_list<const char*> dropped) {
  for (const char* part : dropped)
    for (size_t at; (at = text.find(part)) != std::string::npos;) text.insert(at + 1, " ");
  return text;
}
std::string shown_name(const std::string& name) {
  return shown(name, {"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "__libc_start_main", "_start",
                      "PyEval_", "PyObject_", "PyFunction_"});
}
std::string shown_file(const std::string& file) {
  return shown(file, {"core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c",
                      "Objects/methodobject.c", "pycore_ceval.h", "ceval.c", "cpython/abstract.h"});
}

void write_frame(Writer& w, const RangeNode& range) {
  w.shared(2 * uint64_t(range.id), [&] {
    w.begin_dict();
    w.field("filename", range.parent ? shown_file(range.where.file) : "sinter");
    w.field("line", int64_t(range.where.line));
    w.field("name", range.parent ? shown_name(range.name) : "outside any range");
    w.end_dict();
  });
}

// Innermost first. Without any the viewer would say that nothing was recorded.
void write_frames(Writer& w, uint32_t id) {
  w.key("frames");
  w.shared(2 * uint64_t(id) + 1, [&] {
    std::vector<const RangeNode*> chain = {&range_of(id)};
    while (chain.back()->parent && chain.back()->parent->parent) chain.push_back(chain.back()->parent);
    w.list(chain, [&](const RangeNode* n) { write_frame(w, *n); });
  });
}
void write_no_frames(Writer& w) {
  w.key("frames");
  w.list(std::initializer_list<int>{}, [](int) {});
}

void write_block(Writer& w, const BlockState& b) {
  w.begin_dict();
  w.field("address", b.address);
  w.field("size", b.bytes);
  w.field("requested_size", b.used ? b.requested : 0);  // what a free block served last is no longer there
  w.field("state", b.used ? "active_allocated" : "inactive");
  b.used ? write_frames(w, b.range) : write_no_frames(w);
  if (b.used && b.tensor.rank >= 0) w.field("user_metadata", describe(b.tensor));
  w.end_dict();
}

// The range in which a segment was taken is known if that was recorded.
using SegmentRanges = std::unordered_map<uint64_t, uint32_t>;
SegmentRanges segment_ranges(const Snapshot& snapshot) {
  SegmentRanges ranges;
  for (const MemoryEvent& e : snapshot.events)
    if (e.action == MemoryEvent::segment_alloc) ranges[e.address] = e.range;
  return ranges;
}

void write_segment(Writer& w, const SegmentState& s, const SegmentRanges& ranges) {
  int64_t used = 0, requested = 0;
  for (const BlockState& b : s.blocks)
    if (b.used) used += b.bytes, requested += b.requested;
  w.begin_dict();
  w.field("device", 0);
  w.field("address", s.address);
  w.field("total_size", s.bytes);
  w.field("allocated_size", used);
  w.field("active_size", used);
  w.field("requested_size", requested);
  w.field("stream", s.stream);
  w.field("segment_type", s.small ? "small" : "large");
  w.key("segment_pool_id"), w.pair(0, 0);
  w.field("is_expandable", false);
  auto it = ranges.find(s.address);
  it == ranges.end() ? write_no_frames(w) : write_frames(w, it->second);
  w.key("blocks"), w.list(s.blocks, [&](const BlockState& b) { write_block(w, b); });
  w.end_dict();
}

int64_t microseconds(int64_t steady_ns) { return unix_ns(steady_ns) / 1000; }

void write_event(Writer& w, const MemoryEvent& e, const char* action) {
  bool block = e.action == MemoryEvent::alloc || e.action == MemoryEvent::free;
  w.begin_dict();
  w.field("action", action);
  w.field(e.action == MemoryEvent::out_of_memory ? "device_free" : "addr", e.address);
  w.field("size", block ? e.requested : e.bytes);
  w.field("stream", e.stream);
  w.field("time_us", microseconds(e.time_ns));
  write_frames(w, e.range);
  if (block) w.field("category", name_of(e.category));
  if (block && e.tensor.rank >= 0) w.field("user_metadata", describe(e.tensor));
  w.end_dict();
}

// Closes the events and brings the category "unknown"; see the Note.
void write_closing_event(Writer& w, const Snapshot& snapshot) {
  int64_t used = 0;
  for (const SegmentState& s : snapshot.segments)
    for (const BlockState& b : s.blocks) used += b.used ? b.bytes : 0;
  w.begin_dict();
  w.field("action", "snapshot");
  w.field("addr", 0);
  w.field("size", used);
  w.field("stream", 0);
  w.field("time_us", snapshot.events.empty() ? 0 : microseconds(snapshot.events.back().time_ns));
  write_no_frames(w);
  w.field("category", "unknown");
  w.end_dict();
}

struct NamedEvent {
  const MemoryEvent* event;  // null: the closing one
  const char* action;
};

std::vector<NamedEvent> named_events(const Snapshot& snapshot) {
  std::vector<NamedEvent> all;
  all.reserve(2 * snapshot.events.size() + 1);
  for (const MemoryEvent& e : snapshot.events) switch (e.action) {
      case MemoryEvent::segment_alloc: all.push_back({&e, "segment_alloc"}); break;
      case MemoryEvent::segment_free: all.push_back({&e, "segment_free"}); break;
      case MemoryEvent::alloc: all.push_back({&e, "alloc"}); break;
      case MemoryEvent::out_of_memory: all.push_back({&e, "oom"}); break;
      case MemoryEvent::free:
        all.push_back({&e, "free_requested"});
        all.push_back({&e, "free_completed"});
        break;
    }
  all.push_back({nullptr, "snapshot"});
  return all;
}

void write_snapshot(Writer& w, const Snapshot& snapshot) {
  SegmentRanges ranges = segment_ranges(snapshot);
  w.begin_dict();
  w.key("segments"), w.list(snapshot.segments, [&](const SegmentState& s) { write_segment(w, s, ranges); });
  w.key("device_traces"), w.list(std::initializer_list<int>{0}, [&](int) {
    w.list(named_events(snapshot), [&](const NamedEvent& e) {
      e.event ? write_event(w, *e.event, e.action) : write_closing_event(w, snapshot);
    });
  });
  w.key("allocator_settings"), w.begin_dict();
  w.field("allocator", "sinter");
  w.field("device_memory", snapshot.memory_bytes);
  w.end_dict();
  w.end_dict();
}

}  // namespace

std::string describe(const TensorRef& tensor) {
  std::string text = fmt::format("{} [", name_of(tensor.dtype));
  for (int d = 0; d < tensor.rank; ++d) text += fmt::format("{}{}", d ? ", " : "", tensor.dims[d]);
  return text + "]";
}

std::string to_pickle(const Snapshot& snapshot) {
  PickleWriter w;
  write_snapshot(w, snapshot);
  return w.finish();
}

std::string to_json(const Snapshot& snapshot) {
  JsonWriter w;
  write_snapshot(w, snapshot);
  return std::move(w.out_);
}

}  // namespace sinter
