#include "support/generated.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

#include "backend/device.h"
#include "backend/workspace.h"
#include "compile/passes.h"
#include "ops/table.h"
#include "support/targets.h"

namespace sinter {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

}  // namespace

std::unique_ptr<compile::Executable> compiled_for_cuda(const compile::Step& step, const std::vector<Tensor>& inputs,
                                                       const std::vector<std::string>& without) {
  return compiled_for_cuda(compile::trace(step, inputs, DeviceType::cpu), without);
}

std::unique_ptr<compile::Executable> compiled_for_cuda(compile::Graph g, const std::vector<std::string>& without) {
  g.target = older_gpu();
  for (const compile::Pass& p : compile::all_passes())
    if (std::find(without.begin(), without.end(), p.name) == without.end()) p.run(g, {});
  return std::make_unique<compile::Executable>(std::move(g), std::make_shared<compile::Arena>(DeviceType::cpu), false);
}

GeneratedKernels::~GeneratedKernels() {
  if (library_) dlclose(library_);
}

void GeneratedKernels::add(const compile::Executable& step) {
  for (const compile::Node& n : step.graph().nodes)
    if (n.op == &ops::fused) {
      FusedText t = fused_text(n.call);
      texts_[t.name] = t.text;
    }
}

void GeneratedKernels::build() {
  namespace fs = std::filesystem;
  static int count = 0;  // a path that was loaded before would not be loaded again
  fs::path folder = fs::temp_directory_path() / fmt::format("sinter-generated-{}-{}", getpid(), count++);
  fs::create_directories(folder);
  {
    std::ofstream source(folder / "kernels.cpp");
    source << "#include \"support/cuda_shim.h\"\n" << fused_prelude();
    for (const auto& [name, text] : texts_)
      source << text << "extern \"C\" void run_" << name
             << "(unsigned grid, unsigned block, const sinter::cuda::FusedArgs* a) {\n  shim::run(grid, block, [&] { "
                "sinter::cuda::"
             << name << "(*a); });\n}\n";
  }
  std::string command =
      std::string(SINTER_CXX " -std=c++20 -O1 -w -shared -fPIC -ffp-contract=off -fno-strict-aliasing") +
      " -I" SINTER_SOURCE_DIR "/tests -I" SINTER_SOURCE_DIR "/src -o " + (folder / "kernels.so").string() + " " +
      (folder / "kernels.cpp").string() + " > " + (folder / "log").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << text_of(folder / "log");
  library_ = dlopen((folder / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library_) << dlerror();
  fs::remove_all(folder);
}

void GeneratedKernels::run(const compile::Executable& step) const {
  for (const compile::Node& n : step.graph().nodes) {
    if (n.op != &ops::fused) {
      (cpu_backend().kernels().*(n.op->kernel))(n.call);
      continue;
    }
    using Run = void (*)(unsigned, unsigned, const cuda::FusedArgs*);
    auto run = reinterpret_cast<Run>(dlsym(library_, ("run_" + fused_text(n.call).name).c_str()));
    ASSERT_TRUE(run);
    FusedLaunch l = fused_launch(n.call);
    run(l.grid, l.block, &l.args);
    // What add_groups does on CUDA.
    const FusedProgram& p = *n.call.attrs.as<FusedAttrs>().program;
    for (int j = 0, sum = 0; j < n.call.n_out; ++j) {
      if (!is_column_sum(p, j)) continue;
      const float* part = l.args.partial + int64_t(sum++) * l.grid * p.row_length;
      for (int64_t i = 0; i < p.row_length; ++i) {
        float total = 0;
        for (unsigned g = 0; g < l.grid; ++g) total += part[g * p.row_length + i];
        float& to = n.call.out[j].as<float>()[i];
        to = n.call.accumulates(j) ? to + total : total;
      }
    }
  }
}

}  // namespace sinter
