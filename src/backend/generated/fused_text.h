// Inside the generator of fused kernels: writing text, and steps as C++ expressions.
#pragma once
#include <fmt/format.h>
#include <functional>
#include <vector>

#include "backend/generated/fused_source.h"

namespace sinter::generated {

class Writer {
 public:
  template <class... A> void line(fmt::format_string<A...> format, A&&... args) {
    text_ += std::string(2 * size_t(depth_), ' ') + fmt::format(format, std::forward<A>(args)...) + "\n";
  }
  template <class... A> void open(fmt::format_string<A...> format, A&&... args) {
    line("{} {{", fmt::format(format, std::forward<A>(args)...));
    ++depth_;
  }
  template <class... A> void loop(fmt::format_string<A...> format, A&&... args) {  // unrolled
    text_ += "#pragma unroll\n";
    open(format, std::forward<A>(args)...);
  }
  void close(const char* after = "") {
    --depth_;
    line("}}{}", after);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  int depth_ = 0;
};

const char* type_name(DType t);           // as the prelude calls it
int steps_inputs(const FusedStep& step);  // how many of `from` it reads
// A step of kinds map, constant, fma and exp2, its operands given by name.
std::string expression(const FusedStep& step, const std::function<std::string(int)>& name);
std::string literal(double x);

// Which values the outputs need.
std::vector<bool> needed_values(const FusedProgram& p);

FusedText text_of_elements(const KernelCall& call);
FusedText text_of_rows(const KernelCall& call);
FusedLaunch launch_of_rows(const KernelCall& call);
// name_<hash>, once `text`, which holds @ for it, is complete.
FusedText named(const FusedProgram& p, std::string text);

int elements_vector(const KernelCall& call);

}  // namespace sinter::generated
