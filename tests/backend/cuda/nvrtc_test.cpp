// Every generated kernel compiles for the GPUs that sinter is made for; NVRTC needs none to do
// so. And the cache in front of it.
#include "backend/cuda/nvrtc.h"

#include <fstream>
#include <unistd.h>

#include "support/generated.h"
#include "support/random_net.h"
#include "system/cache_files.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sources() {
  GeneratedKernels kernels;
  const Dims shapes[] = {{3, 5}, {4, 64}, {2, 6, 96}, {3, 768}, {2, 1280}, {2, 12000}};
  for (uint64_t i = 0; i < 12; ++i) {
    Rng rng(400 + i);
    Net net = random_net(rng, shapes[i % 6], i % 2 ? DType::bf16 : DType::f16, i % 6 != 0);
    std::vector<Tensor> leaves = leaves_of(net, i, false);
    kernels.add(*compiled_for_cuda(step_of(net, leaves), {}));
  }
  std::vector<std::string> all;
  for (const auto& [name, text] : kernels.texts()) all.push_back(fused_prelude() + text);
  return all;
}

bool is_cubin(const std::string& s) { return s.substr(0, 4) == "\177ELF"; }

TEST(Nvrtc, CompilesEveryGeneratedKernel) {
  std::vector<std::string> all = sources();
  ASSERT_GT(all.size(), 20u);
  for (size_t i = 0; i < all.size() && i < 40; ++i)
    for (const char* architecture : {"sm_80", "sm_90a"})
      ASSERT_TRUE(is_cubin(cuda::compile_cubin(all[i], architecture))) << all[i];
}

TEST(Nvrtc, SaysWhatDoesNotCompile) {
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::other, [] { cuda::compile_cubin("__global__ void f() { no_such(); }", "sm_90a"); }),
               {"sm_90a", "no_such"}));
}

TEST(Nvrtc, KeepsKernelsOnDiskAndReplacesDamagedOnes) {
  fs::path folder = fs::temp_directory_path() / ("sinter-nvrtc-" + std::to_string(getpid()));
  const char* set = std::getenv("SINTER_CACHE_DIR");
  const std::string usual = set ? set : "";
  setenv("SINTER_CACHE_DIR", folder.c_str(), 1);
  const std::vector<std::string> two = {"extern \"C\" __global__ void a() {}", "extern \"C\" __global__ void b() {}"};
  auto compiled = [&] { return cuda::find_or_compile_cubins(two, "sm_80"); };
  auto files = [&] {
    std::vector<fs::path> all;
    for (const auto& f : fs::directory_iterator(folder / "kernels")) all.push_back(f.path());
    return all;
  };
  std::vector<std::string> first = compiled();
  ASSERT_TRUE(is_cubin(first[0]) && is_cubin(first[1]));
  ASSERT_EQ(files().size(), 2u);
  cuda::find_or_compile_cubins(two, "sm_90a");
  EXPECT_EQ(files().size(), 4u) << "another architecture is another kernel";
  for (const fs::path& f : files()) fs::resize_file(f, 100);
  EXPECT_EQ(compiled(), first) << "damaged files are made again";
  auto before = fs::last_write_time(files()[0]);
  EXPECT_EQ(compiled(), first);
  EXPECT_EQ(fs::last_write_time(files()[0]), before) << "and then found";
  setenv("SINTER_CACHE_DIR", usual.c_str(), 1);  // empty counts as not set
  fs::remove_all(folder);
}

TEST(Nvrtc, NamesArchitectures) {
  EXPECT_EQ(cuda::architecture_of(80), "sm_80");
  EXPECT_EQ(cuda::architecture_of(90), "sm_90a");
}

}  // namespace
}  // namespace sinter
