#include "compile/executable.h"

#include <algorithm>
#include <utility>

#include "backend/process_group.h"
#include "memory/promised_storage.h"
#include "ops/dispatch.h"
#include "ops/ops.h"

namespace sinter::compile {

Executable::Executable(Graph graph, std::shared_ptr<Arena> arena, bool capture)
    : graph_(std::move(graph)), capture_(capture), arena_(std::move(arena)) {
  DeviceType device = graph_.device;
  for (Buffer& b : graph_.buffers) {
    if (const PromisedStorage* promise = b.external ? as_promise(b.external) : nullptr) b.external = promise->kept();
    if (!b.lasting) continue;
    NoGrad off;
    CategoryScope scope(b.category);
    b.external = zeros({b.bytes}, DType::u8, device).impl().storage;
  }
  for (const Node& n : graph_.nodes) {
    if (device != DeviceType::meta) {
      Kernel kernel = n.is_host() ? nullptr : backend_of(device).kernels().*(n.op->kernel);
      check(kernel || n.is_host(), "{}: there is no kernel for it on {}", n.op->name, name_of(device));
      kernels_.push_back(kernel);
    }
    n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool writes) {
      Storage* s = graph_.buffers[size_t(o.buffer)].external.get();
      if (writes && s && std::find(written_.begin(), written_.end(), s) == written_.end()) written_.push_back(s);
    });
  }
  std::vector<const KernelCall*> fused;
  bool takes_turns = false;
  for (const Node& n : graph_.nodes) {
    if (n.op->kind == OpKind::fused) fused.push_back(&n.call);
    if (!n.is_communication()) continue;
    const ProcessGroup& group = *n.call.attrs.as<CollectiveAttrs>().group;
    communicates_ = true;
    capture_ = capture_ && group.captures();
    takes_turns = takes_turns || group.takes_turns(device);
  }
  if (takes_turns) {
    counts_ = static_cast<uint32_t*>(backend_of(device).allocate(max_lanes * sizeof(uint32_t)));
    check(counts_, "a compiled step: the device has no memory left");
  }
  if (!fused.empty()) backend_of(graph_.device).prepare_fused(fused);
  find_segments();
  find_addresses();
  arena_->add(*this);
}

void Executable::find_segments() {
  DeviceBackend& backend = backend_of(graph_.device);
  std::vector<size_t> segment_of(graph_.nodes.size());
  bool wait_for_calls = false;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& n = graph_.nodes[i];
    if (i == 0 || n.is_host() || segments_.back().host) segments_.push_back({i, i, n.is_host(), {}});
    Segment& s = segments_.back();
    s.end = i + 1;
    segment_of[i] = segments_.size() - 1;
    for (int w : n.waits) {
      size_t earlier = segment_of[size_t(w)];
      if (segments_[earlier].host) s.waits.push_back(earlier);
      else if (s.host) s.after = s.depends ? std::max(s.after, earlier) : earlier, s.depends = true;
    }
    wait_for_calls = wait_for_calls || (n.is_host() && n.call.n_in + n.call.n_out > 0);
  }
  if (!wait_for_calls) return;
  begun_ = backend.create_event();
  for (Segment& s : segments_)
    if (!s.host) s.over = backend.create_event();
  if (backend.captures()) action_stream_ = backend.create_stream();
}

bool Executable::is_captured() const {
  return std::all_of(segments_.begin(), segments_.end(), [](const Segment& s) { return s.host || s.captured; });
}
size_t Executable::captured_pieces() const {
  return size_t(std::count_if(segments_.begin(), segments_.end(), [](const Segment& s) { return s.captured; }));
}

void Executable::find_addresses() {
  const Ref<Storage>& arena = arena_->at_least(graph_.arena_bytes);
  auto address = [&](const Operand& o) -> void* {
    if (o.buffer < 0) return nullptr;
    const Buffer& b = graph_.buffers[size_t(o.buffer)];
    const Ref<Storage>& storage = graph_.storage_of(b);
    return static_cast<char*>((storage ? storage : arena)->data) + graph_.base_of(b) + o.offset;
  };
  for (Node& n : graph_.nodes) {
    for (int i = 0; i < n.call.n_in; ++i) n.call.input(i).data = address(n.in[size_t(i)]);
    for (int j = 0; j < n.call.n_out; ++j) n.call.output(j).data = address(n.out[size_t(j)]);
    n.call.workspace = address(n.workspace);
  }
  outputs_.clear();
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const Buffer& b = graph_.buffers[size_t(graph_.outputs[i].buffer)];
    Ref<TensorImpl> impl = new TensorImpl;
    impl->storage = b.external ? b.external : arena;
    impl->device = graph_.device;
    impl->ref = graph_.output_refs[i];
    impl->ref.data = address(graph_.outputs[i]);
    outputs_.emplace_back(std::move(impl));
  }
  has_addresses_ = true;
}

void Executable::forget_addresses() {
  has_addresses_ = false;
  outputs_.clear();
  DeviceBackend& backend = backend_of(graph_.device);
  for (Segment& s : segments_) {
    if (!s.captured) continue;
    backend.synchronize(current_stream(graph_.device));  // it may still be running
    backend.destroy_captured(std::exchange(s.captured, nullptr));
  }
}

Executable::~Executable() {
  arena_->remove(*this);
  actions_.give_up();
  DeviceBackend& backend = backend_of(graph_.device);
  for (const Segment& s : segments_) {
    if (s.captured) backend.destroy_captured(s.captured);
    if (s.over) backend.destroy_event(s.over);
  }
  if (begun_) backend.destroy_event(begun_);
  if (action_stream_) backend.destroy_stream(action_stream_);
  for (void* stream : streams_)
    if (stream) backend.destroy_stream(stream);
  if (counts_) backend.free(counts_);
}

namespace {

// What calls of a lane leave for other lanes to wait for: an event, or the lane's count of such calls.
class Marks {
 public:
  Marks(DeviceBackend& backend, uint32_t* counts, size_t calls) : backend_(backend), counts_(counts), of_(calls) {}
  ~Marks() {
    for (void* e : events_) backend_.destroy_event(e);
  }
  bool are_counts() const { return counts_ != nullptr; }
  void clear(int lane, void* stream) { backend_.set_count(counts_ + lane, 0, stream); }
  void* event(void* stream) {
    backend_.record(events_.emplace_back(backend_.create_event()), stream);
    return events_.back();
  }
  void leave(size_t call, int lane, void* stream) {
    if (are_counts()) backend_.set_count(counts_ + lane, of_[call].count = ++last_[lane], stream);
    else of_[call].event = event(stream);
  }
  void wait(void* stream, size_t call, int its_lane) {
    if (are_counts()) backend_.wait_for_count(stream, counts_ + its_lane, of_[call].count);
    else backend_.wait(stream, of_[call].event);
  }
  // Whatever the lane still does.
  void wait_for_end(void* stream, int lane, void* its_stream) {
    if (are_counts()) {
      backend_.set_count(counts_ + lane, ++last_[lane], its_stream);
      backend_.wait_for_count(stream, counts_ + lane, last_[lane]);
    }
    backend_.wait(stream, event(its_stream));
  }

 private:
  DeviceBackend& backend_;
  uint32_t* counts_;
  struct Mark {
    void* event = nullptr;
    uint32_t count = 0;
  };
  std::vector<Mark> of_;  // by call
  std::vector<void*> events_;
  uint32_t last_[max_lanes] = {};
};

}  // namespace

// In a capture what waits becomes an edge of the graph. Earlier segments are over when this one begins. Listeners hear
// of a call in another lane only that it was made: when it ran is for whoever records streams to say.
void Executable::submit_in_lanes(const Segment& segment) {
  DeviceBackend& backend = backend_of(graph_.device);
  Marks marks(backend, counts_, graph_.nodes.size());
  // Ranks that take turns on a device gain nothing from more lanes than two, and every wait between lanes costs them.
  auto lane_of = [&](size_t i) {
    int lane = graph_.nodes[i].lane;
    return marks.are_counts() && lane != communication_lane ? int(main_lane) : lane;
  };
  void* streams[max_lanes] = {current_stream(graph_.device)};
  std::vector<bool> waited_for(graph_.nodes.size());
  bool used[max_lanes] = {};
  for (size_t i = segment.begin; i < segment.end; ++i) {
    used[lane_of(i)] = true;
    for (int w : graph_.nodes[i].waits)
      if (lane_of(size_t(w)) != lane_of(i)) waited_for[size_t(w)] = true;
  }
  for (int lane = 0; lane < max_lanes && marks.are_counts(); ++lane)
    if (used[lane]) marks.clear(lane, streams[0]);
  void* begin = marks.event(streams[0]);
  for (int lane = 1; lane < max_lanes; ++lane) {
    if (!used[lane]) continue;
    if (!streams_[lane]) streams_[lane] = backend.create_stream(stream_role(lane));
    streams[lane] = streams_[lane];
    backend.wait(streams[lane], begin);
  }
  RangeFollower place;
  for (size_t i = segment.begin; i < segment.end; ++i) {
    Node& n = graph_.nodes[i];
    int lane = lane_of(i);
    place.go_to(*n.range);
    n.call.stream = streams[lane];
    for (int w : n.waits)
      if (size_t e = size_t(w); e >= segment.begin && lane_of(e) != lane) marks.wait(streams[lane], e, lane_of(e));
    bool here = lane == main_lane && !backend.captures();
    for (Interceptor* l = here ? context().interceptor : nullptr; l; l = l->next) l->replaying(*n.op);
    backend.submit(kernels_[i], n.call, {n.op->name, n.range->id, n.is_communication()});
    if (!backend.captures())
      for (Interceptor* l = context().interceptor; l; l = l->next) l->replayed(*n.op, n.cost, n.bytes);
    if (waited_for[i]) marks.leave(i, lane, streams[lane]);
  }
  for (int lane = 1; lane < max_lanes; ++lane)
    if (used[lane]) marks.wait_for_end(streams[0], lane, streams[lane]);
}

// Without a capture. If a call fails, those of other lanes still use the step's memory.
void Executable::run_in_lanes(const Segment& segment) {
  try {
    submit_in_lanes(segment);
  } catch (...) {
    for (void* stream : streams_) try {
        if (stream) backend_of(graph_.device).synchronize(stream);
      } catch (...) {  // the first error is the one to report
      }
    throw;
  }
}

void Executable::submit_in_order(const Segment& segment) {
  RangeFollower place;
  void* stream = current_stream(graph_.device);
  for (size_t i = segment.begin; i < segment.end; ++i) {
    Node& n = graph_.nodes[i];
    place.go_to(*n.range);
    n.call.stream = stream;
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replaying(*n.op);
    if (!kernels_.empty()) kernels_[i](n.call);  // the meta device has none
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replayed(*n.op, n.cost, n.bytes);
  }
}

void Executable::capture(Segment& segment) {
  DeviceBackend& backend = backend_of(graph_.device);
  void* stream = current_stream(graph_.device);
  backend.begin_capture(stream);
  try {
    submit_in_lanes(segment);
  } catch (...) {
    try {
      backend.destroy_captured(backend.end_capture(stream));
    } catch (...) {  // the first error is the one to report
    }
    throw;
  }
  segment.captured = backend.end_capture(stream);
}

void Executable::launch(const Segment& segment) {
  backend_of(graph_.device).launch(segment.captured, current_stream(graph_.device));
  if (!context().interceptor) return;
  RangeFollower place;
  for (size_t i = segment.begin; i < segment.end; ++i) {
    const Node& n = graph_.nodes[i];
    place.go_to(*n.range);
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replayed(*n.op, n.cost, n.bytes);
  }
}

// An action waits for the last segment whose results it needs, and at least for what ran before this step. What it does
// on the device has a stream of its own, and is over when it returns.
void Executable::act(Segment& segment) {
  const Node& n = graph_.nodes[segment.begin];
  if (n.call.n_in + n.call.n_out == 0) {
    RangeFollower place;
    place.go_to(*n.range);
    return (*n.action)(n.call);
  }
  if (graph_.device == DeviceType::meta) return;
  void* event = segment.depends ? segments_[segment.after].over : begun_;
  segment.number = actions_.add([this, &n, event] {
    DeviceBackend& backend = backend_of(graph_.device);
    backend.synchronize_event(event);
    Scoped<void*> stream(context().cuda_stream, action_stream_);
    RangeFollower place;
    place.go_to(*n.range);
    (*n.action)(n.call);
    if (action_stream_) backend.synchronize(action_stream_);
  });
}

void Executable::run() {
  if (!has_addresses_) find_addresses();
  DeviceBackend& backend = backend_of(graph_.device);
  void* stream = current_stream(graph_.device);
  bool captures = ran_ && capture_ && backend.captures();
  if (begun_) backend.record(begun_, stream);
  auto changed = [&] {
    for (Storage* s : written_) ++s->version;
  };
  try {
    for (Segment& s : segments_) {
      for (size_t w : s.waits) actions_.wait(segments_[w].number);
      if (s.host) {
        act(s);
        continue;
      }
      if (captures && !s.captured) capture(s);
      if (s.captured) launch(s);
      else if (backend.fills_idle_time() || (communicates_ && graph_.device == DeviceType::cpu)) run_in_lanes(s);
      else submit_in_order(s);
      if (s.over) backend.record(s.over, stream);
    }
    actions_.wait_for_all();
  } catch (...) {
    actions_.give_up();
    changed();  // some of it
    throw;
  }
  ran_ = true;
  changed();
}

}  // namespace sinter::compile
