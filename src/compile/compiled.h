// A step that is traced on its first call, and again when its inputs' shapes or types change, and replayed otherwise.
#pragma once
#include <map>
#include <memory>

#include "compile/executable.h"
#include "compile/tracer.h"

namespace sinter::compile {

struct CompileOptions {
  std::vector<std::string> without = {};  // what is switched off: names of pass_names()
  int64_t memory_budget = 0;   // bytes that the step may take in all, with parameters and the rest; 0: no limit
  bool deterministic = false;  // passes bring in no calls whose bits differ from run to run
};
std::vector<std::string> pass_names();  // those of all_passes(), and "graph": replayed as one captured piece
// "all", "none", or the names of what is on with + between them; refuses unknown ones by listing what there is.
CompileOptions passes_named(const std::string& text);

struct CompileTime {
  double trace_ms = 0, passes_ms = 0, build_ms = 0;  // build: memory, and generated kernels
  CompileTime& operator+=(const CompileTime& o) {
    trace_ms += o.trace_ms, passes_ms += o.passes_ms, build_ms += o.build_ms;
    return *this;
  }
};
struct Compilation {
  std::unique_ptr<Executable> executable;
  std::vector<Report> reports;
  CompileTime time;
};

class Compiled {
 public:
  // Steps that never run at the same time may share an arena; what one returns then holds until any of them is called.
  Compiled(Step step, DeviceType device, CompileOptions options = {}, std::shared_ptr<Arena> arena = {});

  // What the step returns, computed; holds until the next call. Inputs are copied to where the trace reads them; what
  // else the step uses (parameters) is read where it lay when the step was traced.
  const std::vector<Tensor>& operator()(const std::vector<Tensor>& inputs);
  // What the last call ran.
  const Compilation& compilation() const { return *last_; }
  size_t traces() const { return compilations_.size(); }
  CompileTime compile_time() const;  // of all traces

 private:
  struct Traced : Compilation {
    std::vector<Tensor> inputs;
    Windows windows;
  };
  Traced& find_or_compile(const std::vector<Tensor>& inputs);
  std::unique_ptr<Traced> compile(const std::vector<Tensor>& inputs);

  Step step_;
  DeviceType device_;
  CompileOptions options_;
  std::shared_ptr<Arena> arena_;
  std::multimap<std::string, std::unique_ptr<Traced>> compilations_;  // by shapes, types and modes
  Compilation* last_ = nullptr;
};

}  // namespace sinter::compile
