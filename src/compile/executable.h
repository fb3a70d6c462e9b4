// A graph with memory: runs a step call by call, and, where the device can, each segment (Note [Segments])
// as one captured CUDA graph.
#pragma once
#include <functional>

#include "compile/arena.h"
#include "compile/graph.h"
#include "compile/host_queue.h"

namespace sinter::compile {

class Executable {
 public:
  // `capture`: replay as one (a CUDA graph). The first run is call by call in any case: libraries choose
  // algorithms, modules are loaded.
  Executable(Graph graph, std::shared_ptr<Arena> arena, bool capture = true);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void run();  // does not wait for the device, but where host actions do
  const std::vector<Tensor>& outputs() const { return outputs_; }  // hold until the next run
  const Graph& graph() const { return graph_; }
  bool is_captured() const;        // every segment is
  size_t captured_pieces() const;  // one for each segment, once they are
  void forget_addresses();         // the arena's memory will be elsewhere; the next run finds it, and captures again

 private:
  struct Segment {
    size_t begin, end;          // calls
    bool host;                  // a single one, which is a host action
    std::vector<size_t> waits;  // segments that are host actions, which must be over before it begins
    void* captured = nullptr;
    void* over = nullptr;  // an event, where host actions wait for what calls compute
    size_t after = 0;      // of a host action: the last segment whose results it needs …
    bool depends = false;  // … if there is one
    int64_t number = 0;    // of a host action in this run's queue
  };
  void find_segments();
  void act(Segment& segment);
  void find_addresses();
  void submit_in_order(const Segment& segment);
  void submit_in_lanes(const Segment& segment);
  void run_in_lanes(const Segment& segment);
  void capture(Segment& segment);
  void launch(const Segment& segment);

  Graph graph_;
  bool capture_;
  std::shared_ptr<Arena> arena_;
  std::vector<Kernel> kernels_;
  std::vector<Storage*> written_;  // existing storages that the step changes
  std::vector<Tensor> outputs_;
  std::vector<Segment> segments_;
  void* begun_ = nullptr;          // an event: what host actions wait for at least
  void* action_stream_ = nullptr;  // for what actions do on the device: segments may be being captured beside them
  void* streams_[max_lanes] = {};  // of all lanes but the main one
  bool communicates_ = false;
  uint32_t* counts_ = nullptr;  // by lane, on the device: Note [Taking turns] in backend/cuda/exchange.h
  bool ran_ = false, has_addresses_ = false;
  HostQueue actions_;  // the first to go: they use the rest
};

}  // namespace sinter::compile
