// Kernels replayed by a CUDA graph keep the names of the ranges they were captured in.
#ifdef SINTER_HAS_CUDA
#include <cuda_runtime_api.h>
#include <map>
#include <set>

#include "backend/activity_recorder.h"
#include "ops/ops.h"
#include "profile/range.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Correlator : RangeListener {
  ActivityRecorder& recorder;
  explicit Correlator(ActivityRecorder& r) : recorder(r) {}
  void entered(const RangeNode& r) override { recorder.enter(r.id); }
  void left(const RangeNode&) override { recorder.leave(); }
};

TEST(ProfilerGpu, NamesSurviveGraphReplays) {
  SINTER_REQUIRE_GPU();
  std::string why_not;
  std::unique_ptr<ActivityRecorder> recorder = cuda_activity_recorder(why_not);
  ASSERT_TRUE(recorder) << why_not;
  Correlator correlator(*recorder);
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
  work();  // tunes the product, which cannot happen inside a capture
  work();
  auto stream = static_cast<cudaStream_t>(current_stream(DeviceType::cuda));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  work();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

  recorder->start();
  for (int i = 0; i < 3; ++i) {
    Range replay("replay");
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  }
  ActivityRecorder::Result r = recorder->stop();
  std::map<std::string, int> count;
  for (const Activity& a : r.device) {
    EXPECT_TRUE(a.from_graph);
    ++count[range_of(a.range).path()];
  }
  EXPECT_EQ(count["layers.5/attn/softmax"], 3);
  EXPECT_GE(count["layers.5/attn/matmul"], 3) << "a product may take several kernels";
  EXPECT_EQ(count["layers.5/ffn/add"], 3);
  EXPECT_EQ(count.size(), 3u) << "nothing else ran, and nothing belongs to the replay alone";
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace sinter
#endif
