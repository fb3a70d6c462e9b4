// Kernels replayed by a CUDA graph keep the names of the ranges they were captured in.
#include <cuda_runtime_api.h>
#include <map>

#include "ops/ops.h"
#include "profile/profiler.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

TEST(ProfilerGpu, NamesSurviveGraphReplays) {
  SINTER_REQUIRE_GPU();
  Profiler profiler(DeviceType::cuda, ProfilerChoice::cupti);
  NoGrad off;
  Tensor x = full({256, 256}, 0.5, DType::bf16, DeviceType::cuda), y;
  auto work = [&] {
    Range layer("layers.5");
    {
      Range r("attn");
      y = softmax(matmul(x, x), {});
    }
    Range r("ffn");
    y = add(y, y);
  };
  work();  // tunes the GEMM, which cannot happen inside a capture
  work();
  auto stream = static_cast<cudaStream_t>(current_stream(DeviceType::cuda));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  work();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

  auto replay = [&] {
    Range range("replay");
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  };
  Profile p = profiler.run(replay, 0, 3, false).value();
  std::map<std::string, int> count;
  for (const Activity& a : p.trace.device) ++count[range_of(a.range).path()];
  EXPECT_EQ(count["layers.5/attn/softmax"], 3);
  EXPECT_GE(count["layers.5/attn/matmul"], 3) << "a product may take several kernels";
  EXPECT_EQ(count["layers.5/ffn/add"], 3);
  EXPECT_EQ(count.size(), 3u) << "nothing else ran, and nothing belongs to the replay alone";
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace sinter
