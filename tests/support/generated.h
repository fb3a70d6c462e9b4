// Steps compiled for CUDA and run here: generated kernels as C++ (cuda_shim.h), all other calls by the CPU.
#pragma once
#include <map>
#include <memory>

#include "backend/generated/fused_source.h"
#include "compile/executable.h"
#include "compile/tracer.h"

namespace sinter {

// A step's graph as the passes leave it for a GPU, with memory on the CPU.
std::unique_ptr<compile::Executable> compiled_for_cuda(compile::Graph graph,
                                                       const std::vector<std::string>& without = {});
std::unique_ptr<compile::Executable> compiled_for_cuda(const compile::Step& step, const std::vector<Tensor>& inputs,
                                                       const std::vector<std::string>& without = {});

// Kernels of any number of steps, compiled together: a compiler's start costs more than a kernel.
class GeneratedKernels {
 public:
  ~GeneratedKernels();
  void add(const compile::Executable& step);
  void build();  // after the last add; fails the test if they do not compile
  void run(const compile::Executable& step) const;

  const std::map<std::string, std::string>& texts() const { return texts_; }  // by name

 private:
  std::map<std::string, std::string> texts_;
  void* library_ = nullptr;
};

}  // namespace sinter
