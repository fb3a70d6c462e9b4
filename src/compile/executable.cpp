#include "compile/executable.h"

#include <algorithm>
#include <utility>

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
      Kernel kernel = backend_of(device).kernels().*(n.op->kernel);
      check(kernel, "{}: there is no kernel for it on {}", n.op->name, name_of(device));
      kernels_.push_back(kernel);
    }
    n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool writes) {
      Storage* s = graph_.buffers[size_t(o.buffer)].external.get();
      if (writes && s && std::find(written_.begin(), written_.end(), s) == written_.end()) written_.push_back(s);
    });
  }
  std::vector<const KernelCall*> fused;
  for (const Node& n : graph_.nodes)
    if (n.op->kind == OpKind::fused) fused.push_back(&n.call);
  if (!fused.empty()) backend_of(graph_.device).prepare_fused(fused);
  size_t all = graph_.nodes.size(), cut = size_t(graph_.second_piece);
  if (cut > 0) pieces_ = {{0, cut}, {cut, all}};
  else pieces_ = {{0, all}};
  find_addresses();
  arena_->add(*this);
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
  for (Piece& p : pieces_) {
    if (!p.captured) continue;
    backend.synchronize(current_stream(graph_.device));  // it may still be running
    backend.destroy_captured(std::exchange(p.captured, nullptr));
  }
}

Executable::~Executable() {
  arena_->remove(*this);
  for (const Piece& p : pieces_)
    if (p.captured) backend_of(graph_.device).destroy_captured(p.captured);
  for (void* stream : side_streams_)
    if (stream) backend_of(graph_.device).destroy_stream(stream);
}

// In a capture what waits becomes an edge of the graph. Earlier pieces are over when this one begins.
void Executable::submit_in_lanes(const Piece& piece) {
  DeviceBackend& backend = backend_of(graph_.device);
  struct Events {
    DeviceBackend& backend;
    std::vector<void*> all;
    void* make() { return all.emplace_back(backend.create_event()); }
    ~Events() {
      for (void* e : all) backend.destroy_event(e);
    }
  } events{backend, {}};
  void* streams[max_lanes] = {current_stream(graph_.device)};
  std::vector<bool> waited_for(graph_.nodes.size());
  bool used[max_lanes] = {};
  for (size_t i = piece.begin; i < piece.end; ++i) {
    used[graph_.nodes[i].lane] = true;
    for (int w : graph_.nodes[i].waits) waited_for[size_t(w)] = true;
  }
  void* begin = events.make();
  backend.record(begin, streams[0]);
  for (int lane = 1; lane < max_lanes; ++lane) {
    if (!used[lane]) continue;
    if (!side_streams_[lane]) side_streams_[lane] = backend.create_stream(true);
    streams[lane] = side_streams_[lane];
    backend.wait(streams[lane], begin);
  }
  std::vector<void*> over(graph_.nodes.size());
  RangeFollower place;
  for (size_t i = piece.begin; i < piece.end; ++i) {
    Node& n = graph_.nodes[i];
    place.go_to(*n.range);
    n.call.stream = streams[n.lane];
    for (int w : n.waits)
      if (size_t(w) >= piece.begin) backend.wait(streams[n.lane], over[size_t(w)]);
    backend.submit(kernels_[i], n.call);
    if (waited_for[i]) backend.record(over[i] = events.make(), streams[n.lane]);
  }
  for (int lane = 1; lane < max_lanes; ++lane) {
    if (!used[lane]) continue;
    void* end = events.make();
    backend.record(end, streams[lane]);
    backend.wait(streams[0], end);
  }
}

// Without a capture. If a call fails, those of other lanes still use the step's memory.
void Executable::run_in_lanes(const Piece& piece) {
  try {
    submit_in_lanes(piece);
  } catch (...) {
    for (void* stream : side_streams_) try {
        if (stream) backend_of(graph_.device).synchronize(stream);
      } catch (...) {  // the first error is the one to report
      }
    throw;
  }
}

void Executable::submit_in_order(const Piece& piece) {
  RangeFollower place;
  void* stream = current_stream(graph_.device);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    Node& n = graph_.nodes[i];
    place.go_to(*n.range);
    n.call.stream = stream;
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replaying(*n.op);
    if (!kernels_.empty()) kernels_[i](n.call);  // the meta device has none
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replayed(*n.op, n.cost, n.bytes);
  }
}

void Executable::capture(Piece& piece) {
  DeviceBackend& backend = backend_of(graph_.device);
  void* stream = current_stream(graph_.device);
  backend.begin_capture(stream);
  try {
    submit_in_lanes(piece);
  } catch (...) {
    backend.destroy_captured(backend.end_capture(stream));
    throw;
  }
  piece.captured = backend.end_capture(stream);
}

void Executable::launch(const Piece& piece) {
  backend_of(graph_.device).launch(piece.captured, current_stream(graph_.device));
  if (!context().interceptor) return;
  RangeFollower place;
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const Node& n = graph_.nodes[i];
    place.go_to(*n.range);
    for (Interceptor* l = context().interceptor; l; l = l->next) l->replayed(*n.op, n.cost, n.bytes);
  }
}

void Executable::run(const std::function<void()>& between) {
  if (!has_addresses_) find_addresses();
  bool captures = ran_ && capture_ && backend_of(graph_.device).captures();
  for (Piece& p : pieces_) {
    if (captures && !p.captured) capture(p);
    if (p.captured) launch(p);
    else if (!context().interceptor && backend_of(graph_.device).fills_idle_time()) run_in_lanes(p);
    else submit_in_order(p);
    if (between && &p == pieces_.data() && pieces_.size() > 1) between();
  }
  ran_ = true;
  for (Storage* s : written_) ++s->version;
}

}  // namespace sinter::compile
