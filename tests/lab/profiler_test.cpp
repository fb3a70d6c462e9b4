// The profiler on a small model: everything is attributed, and the parts add up.
#include "profile/profiler.h"

#include "lab/profile/profile_model.h"
#include "nn/transformer.h"
#include "profile/kernel_table.h"
#include "support/gpu.h"
#include "support/values.h"
#include "train/workload.h"

namespace sinter::lab {
namespace {

MeasuredRun little(DeviceType device, const char* dtype = "fp32") {
  MeasuredRun c;
  c.model.d_model = 64, c.model.d_ff = 96, c.model.layers = 3, c.model.heads = 4, c.model.vocab = 101, c.model.ctx = 24;
  c.model.attention.kind = AttentionKind::naive;
  c.batch = 2;
  c.device = device;
  c.precision = precision_named(dtype);
  return c;
}

Profile profile_of(const MeasuredRun& c, ProfilerChoice choice = ProfilerChoice::automatic) {
  Profiler profiler(c.device, choice);
  Workload work(c, c.device, make_transformer);
  return profiler.run([&] { work.run(); }, 1, 2, true).value();
}

void expect_sound(const MeasuredRun& c, const Profile& p) {
  Json r = profile_result(config_of(c), p, "attn", {1e12, 1e11});
  const Json& a = r["attribution"];
  EXPECT_EQ(a["unattributed"], 0);
  EXPECT_EQ(a["dropped"], 0);
  EXPECT_NEAR(a["by_range_ms"].get<double>(), a["total_ms"].get<double>(), 1e-9);
  double phases = 0;
  for (const Json& x : r["phases"])
    if (x["phase"] != "whole pass") phases += x["ms"].get<double>();
  EXPECT_NEAR(phases, a["total_ms"].get<double>(), 1e-9) << "every activity lies in a phase";
  const Json& d = r["device_time"];
  EXPECT_GT(d["busy_ms"].get<double>(), 0);
  EXPECT_LE(d["busy_ms"].get<double>(), a["total_ms"].get<double>() * 1.0001);

  EXPECT_EQ(r["phases"].size(), 4u);
  for (const Json& x : r["phases"]) EXPECT_EQ(x["gemm_share"].get<double>() > 0, x["phase"] != "optimizer");
  std::map<std::string, double> calls;
  for (const Json& o : r["ops"]) calls[o["op"]] = o["calls"];
  EXPECT_EQ(calls["linear"], 4 * 3 + 1);
  EXPECT_EQ(calls["linear_weight_grad"], 4 * 3 + 1);
  EXPECT_EQ(calls["softmax"], 3);
  EXPECT_EQ(calls["matmul"], 3 * 6);
  const Json& forward = r["attention_parts"]["forward"];
  EXPECT_DOUBLE_EQ(forward["products_flops"].get<double>(), 3 * 2 * 2.0 * 2 * 24 * 24 * 64);
  double selected = r["selected"]["ms"];
  EXPECT_GT(selected, forward["products_ms"].get<double>()) << "--range attn takes in more than the products";
  EXPECT_LT(selected, a["total_ms"].get<double>());
}

TEST(Profiler, AttributesEveryOpOnTheCpu) {
  MeasuredRun c = little(DeviceType::cpu);
  Profile p = profile_of(c);
  EXPECT_EQ(p.source, "clock");
  expect_sound(c, p);
  for (const Activity& a : p.trace.device) EXPECT_EQ(range_of(a.range).kind, RangeKind::op);
  EXPECT_FALSE(p.trace.memory.empty());
}

TEST(Profiler, BackwardRunsInTheModulesOfForward) {
  Profile p = profile_of(little(DeviceType::cpu));
  std::set<std::string> paths;
  for (const Activity& a : p.trace.device) paths.insert(range_of(a.range).path());
  for (const char* path :
       {"step/forward/embedding/embedding", "step/forward/layers.1/attn/softmax/softmax",
        "step/backward/layers.1/attn/softmax/softmax_backward", "step/backward/layers.2/ffn/w2/linear_weight_grad",
        "step/backward/layers.0/norm1/rms_norm_backward", "step/backward/embedding/embedding_backward",
        "step/optimizer/adamw", "step/backward/layers.2/ffn/w2/again/swiglu"})
    EXPECT_EQ(paths.count(path), 1u) << path;
}

TEST(Profiler, SeesAttentionAlone) {
  AttentionConfig c;
  c.batch = 2, c.heads = c.kv_heads = 3, c.ctx = 16, c.head_dim = 8;
  AttentionWork work(c, DeviceType::cpu);
  Profile p = Profiler(DeviceType::cpu, ProfilerChoice::automatic).run([&] { work.run(); }, 0, 1, false).value();
  Json r = profile_result(to_json(c), p, "", {});
  const Json &forward = r["attention_parts"]["forward"], &backward = r["attention_parts"]["backward"];
  EXPECT_DOUBLE_EQ(forward["products_flops"].get<double>(), 2 * 2.0 * 2 * 3 * 16 * 16 * 8);
  EXPECT_DOUBLE_EQ(backward["products_flops"].get<double>(), 2 * forward["products_flops"].get<double>());
  EXPECT_EQ(r["attribution"]["unattributed"], 0);
}

TEST(Profiler, FlashIsARangeOfItsOwn) {
  MeasuredRun c = little(DeviceType::cpu);
  c.model.attention.kind = AttentionKind::flash;
  Profile p = profile_of(c);
  Json r = profile_result(config_of(c), p, "", {});
  EXPECT_TRUE(r["attention_parts"].empty()) << "softmax and products cannot be told apart";
  std::set<std::string> paths;
  for (const Activity& a : p.trace.device) paths.insert(range_of(a.range).path());
  EXPECT_EQ(paths.count("step/forward/layers.1/attn/flash/attention"), 1u);
  EXPECT_EQ(paths.count("step/backward/layers.1/attn/flash/attention_backward"), 1u);
  for (const std::string& path : paths)
    EXPECT_EQ(path.find("/attn/copy"), std::string::npos) << "joining the heads is a view";
}

TEST(Profiler, RefusesWhatTheCpuHasNot) {
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { Profiler(DeviceType::cpu, ProfilerChoice::cupti); }),
                       {"--profiler", "CPU"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { profiler_named("nsys"); }), {"--profiler nsys", "events"}));
}

TEST(Profiler, LeavesNothingBehind) {
  EXPECT_EQ(context().interceptor, nullptr);
  profile_of(little(DeviceType::cpu));
  EXPECT_EQ(context().interceptor, nullptr);
  EXPECT_TRUE(allocator_of(DeviceType::cpu).take_events().empty());
}

TEST(ProfilerGpu, AttributesEveryKernel) {
  SINTER_REQUIRE_GPU();
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    MeasuredRun c = little(DeviceType::cuda, dtype);
    Profile p = profile_of(c, ProfilerChoice::cupti);
    EXPECT_EQ(p.source, "cupti");
    expect_sound(c, p);
    std::map<uint32_t, int> launched;
    for (const Activity& call : p.trace.calls) launched[call.correlation]++;
    for (const Activity& a : p.trace.device) {
      EXPECT_EQ(launched.count(a.correlation), 1u) << a.name;
      EXPECT_GT(a.stream, 0) << a.name;
      EXPECT_LT(a.begin_ns, a.end_ns) << a.name;
      EXPECT_GE(a.begin_ns, p.trace.steps.front().first) << "one clock for host and device";
      EXPECT_LE(a.end_ns, p.trace.steps.back().second);
    }
  }
}

TEST(ProfilerGpu, DeviceEventsGiveTheSameOps) {
  SINTER_REQUIRE_GPU();
  MeasuredRun c = little(DeviceType::cuda);
  Profile p = profile_of(c, ProfilerChoice::events);
  EXPECT_EQ(p.source, "events");
  expect_sound(c, p);
  EXPECT_FALSE(profile_result(config_of(c), p, "", {}).profiler.lost.empty());
}

TEST(KernelTable, CountsAsNsysDoes) {
  std::vector<Activity> all(5);
  int64_t ns[] = {10, 30, 20, 101, 40};
  for (int i = 0; i < 5; ++i) {
    all[size_t(i)].name = i == 3 ? "b" : "a";
    all[size_t(i)].end_ns = ns[i];
  }
  std::vector<KernelStats> t = kernel_table(select(all, [](const Activity&) { return true; }));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0].total_ns, 101);
  EXPECT_EQ(t[1].name, "a");
  EXPECT_EQ(t[1].instances, 4);
  EXPECT_EQ(t[1].average_ns, 25);
  EXPECT_EQ(t[1].median_ns, 25);
  EXPECT_EQ(t[1].min_ns, 10);
  EXPECT_EQ(t[1].max_ns, 40);
  EXPECT_NEAR(t[1].std_ns, std::sqrt(500.0 / 3), 1e-9);
}

TEST(KernelTable, NamesAndPatterns) {
  EXPECT_EQ(short_name("void sinter::cuda::(anonymous namespace)::softmax_rows<float, 4>(Args)"),
            "softmax_rows<float, 4>");
  EXPECT_EQ(short_name("sm90_xmma_gemm_f32"), "sm90_xmma_gemm_f32");
  EXPECT_TRUE(matches("step/backward/layers.7/attn/softmax", "attn"));
  EXPECT_TRUE(matches("step/backward/layers.7/attn/softmax", "*/layers.7/*"));
  EXPECT_FALSE(matches("step/backward/layers.7/attn/softmax", "*/layers.8/*"));
  EXPECT_FALSE(matches("step/backward/layers.7/attn/softmax", "ffn"));
  Range step("step"), backward("backward", RangeKind::phase), layer("layers.7"), attn("attn"), op("add", RangeKind::op);
  EXPECT_TRUE(lies_in(Range::current(), "step/backward/layers.*/attn")) << "as the table of ranges prints it";
  EXPECT_TRUE(lies_in(Range::current(), "layers.7"));
  EXPECT_FALSE(lies_in(Range::current(), "*/layers.8"));
}

}  // namespace
}  // namespace sinter::lab
