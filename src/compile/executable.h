// A graph with memory: runs a step call by call, and, where the device can, as one captured piece of work (or two: Graph::second_piece).
#pragma once
#include <functional>

#include "compile/arena.h"
#include "compile/graph.h"

namespace sinter::compile {

class Executable {
 public:
  // `capture`: replay as one (a CUDA graph). The first run is call by call in any case: libraries choose algorithms, modules are loaded.
  Executable(Graph graph, std::shared_ptr<Arena> arena, bool capture = true);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void run(const std::function<void()>& between = {});  // called as the first of two pieces has been submitted
  const std::vector<Tensor>& outputs() const { return outputs_; }  // hold until the next run
  const Graph& graph() const { return graph_; }
  bool is_captured() const { return pieces_[0].captured != nullptr; }
  void forget_addresses();  // the arena's memory will be elsewhere; the next run finds it, and captures again

 private:
  struct Piece {
    size_t begin, end;  // calls
    void* captured = nullptr;
  };
  void find_addresses();
  void submit_in_order(const Piece& piece);
  void submit_in_lanes(const Piece& piece);
  void run_in_lanes(const Piece& piece);
  void capture(Piece& piece);
  void launch(const Piece& piece);

  Graph graph_;
  bool capture_;
  std::shared_ptr<Arena> arena_;
  std::vector<Kernel> kernels_;
  std::vector<Storage*> written_;  // existing storages that the step changes
  std::vector<Tensor> outputs_;
  std::vector<Piece> pieces_;
  void* side_streams_[max_lanes] = {};  // of all lanes but the first
  bool ran_ = false, has_addresses_ = false;
};

}  // namespace sinter::compile
