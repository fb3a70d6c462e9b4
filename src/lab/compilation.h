// What compiling did and cost, as records have it.
#pragma once
#include "compile/compiled.h"
#include "lab/fields.h"

namespace sinter::lab {

struct PassResult {
  struct Done {  // the same in every layer is said once
    std::string what;
    int64_t times = 0;
    template <class Self, class F> static void fields(Self& self, F&& f) {
      f("what", self.what);
      f("times", self.times);
    }
  };

  std::string pass;
  int64_t calls_before = 0, calls_after = 0, bytes_before = 0, bytes_after = 0;
  std::optional<std::vector<Done>> did;  // of compile model
  std::optional<std::string> meaning;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("pass", self.pass);
    f("calls_before", self.calls_before);
    f("calls_after", self.calls_after);
    f("bytes_before", self.bytes_before);
    f("bytes_after", self.bytes_after);
    f("did", self.did);
    f("meaning", self.meaning);
  }
};

struct CompilationResult {
  double trace_ms = 0, passes_ms = 0, build_ms = 0;
  int64_t calls = 0, arena_bytes = 0, live_bytes = 0;
  bool captured = false;
  std::vector<PassResult> passes;
  std::optional<double> first_run_ms, capture_ms;  // where it was run

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("trace_ms", self.trace_ms);
    f("passes_ms", self.passes_ms);
    f("build_ms", self.build_ms);
    f("calls", self.calls);
    f("arena_bytes", self.arena_bytes);
    f("live_bytes", self.live_bytes);
    f("captured", self.captured);
    f("passes", self.passes);
    f("first_run_ms", self.first_run_ms);
    f("capture_ms", self.capture_ms);
  }
};
CompilationResult compilation_of(const compile::Compilation& compilation, const compile::CompileTime& time);

}  // namespace sinter::lab
