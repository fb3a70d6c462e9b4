// The closed forms give the numbers that are known, and those that the engine counts.
#include "plan/closed_forms.h"

#include <fstream>
#include <sstream>

#include "dist/group.h"
#include "nn/transformer.h"
#include "plan/gpus.h"
#include "plan/prediction.h"
#include "support/values.h"

namespace sinter::plan {
namespace {

CostQuestion question(const std::string& size, const std::string& dtype = "fp32") {
  CostQuestion q;
  q.model = known_size(size);
  q.model.attention.kind = AttentionKind::flash;
  q.batch = 4;
  q.copies = precision_named(dtype).compute.has_value();
  q.product_bytes = q.copies ? 2 : 4;
  q.mesh.flops = 1e15, q.mesh.bandwidth = 1e11, q.mesh.memory = 80e9, q.mesh.call_s = 1e-5;
  return q;
}
CostQuestion question(const std::string& size, const std::string& dtype, int64_t data, ShardLevel shard) {
  CostQuestion q = question(size, dtype);
  q.mesh.data = data, q.shard = shard;
  return q;
}

// The value of the line that says so, of a section where symbols repeat.
double line(const Sheet& s, const std::string& what) {
  for (const Sheet::Line& l : s.lines)
    if (l.what == what) return l.value;
  ADD_FAILURE() << "no line: " << what;
  return 0;
}

constexpr ShardLevel levels[] = {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients,
                                 ShardLevel::parameters};

TEST(Sheet, ComputesWhatItShows) {
  Sheet s;
  s.given("", "a", 12), s.given("", "b_2", 1e9), s.given("", "φ", 2.5);
  EXPECT_EQ(s.add("", "x", "2·(a - 1)/a·b_2 + φ²"), 2.0 * 11 / 12 * 1e9 + 6.25);
  EXPECT_EQ(s.lines.back().numbers, "2·(12 - 1)/12·1e9 + 2.5²");
  EXPECT_EQ(s.add("", "y", "max(√(a·3), ceil(a/5)) - 1 - 1"), 4);
  EXPECT_EQ(s.add("", "z", "1.5·y/2/3"), 1);
  for (const char* wrong : {"", "2·", "(a", "a)", "max(a)", "unknown", "a b_2", "2 ^ 3"})
    EXPECT_THROW(s.add("", "w", wrong), Error) << wrong;
}

TEST(Sheet, NumbersAreGrouped) {
  EXPECT_EQ(number_text(219848638464), "219,848,638,464");
  EXPECT_EQ(number_text(4.6e14), "4.6e14");
  EXPECT_EQ(number_text(1e-6), "1e-6");
  EXPECT_EQ(number_text(20444.4), "20,444");
  EXPECT_EQ(number_text(1e12 / 7), "1.42857e11");
  EXPECT_EQ(number_text(0.8), "0.8");
  EXPECT_EQ(number_text(20.83617), "20.8362");
}

// Ring collectives: an all-reduce of V bytes over N ranks takes 2(N-1)/N·V/W, a gather or a scatter half of that.
TEST(ClosedForms, RingCollectives) {
  Sheet ddp = cost_sheet(question("xl", "fp32", 8, ShardLevel::none));
  double bytes = 4.0 * 1998235200;
  EXPECT_DOUBLE_EQ(ddp.at("Q_ar"), 2 * 7.0 / 8 * bytes);
  EXPECT_DOUBLE_EQ(ddp.at("T_ar"), 2 * 7.0 / 8 * bytes / 1e11);
  Sheet fsdp = cost_sheet(question("xl", "fp32", 8, ShardLevel::parameters));
  for (const char* half : {"T_ag", "T_ag2", "T_rs"}) EXPECT_DOUBLE_EQ(fsdp.at(half), ddp.at("T_ar") / 2);
}

// What moves in a step: DDP 2Ψ, ZeRO-1 and -2 2Ψ, ZeRO-3 3Ψ, of which each rank sends (N-1)/N.
TEST(ClosedForms, BytesOnTheWireByLevel) {
  double psi = 4.0 * 1998235200;
  const double expected[] = {2, 2, 2, 3};
  for (int i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(cost_sheet(question("xl", "fp32", 4, levels[i])).at("Q_X") / (3.0 / 4) / psi, expected[i]);
}

// Memory for each parameter: fp32 16 B; bf16 with fp32 master and gradient 18 B; sharded optimizer 6 + 12/d B.
TEST(ClosedForms, BytesOfAParameter) {
  EXPECT_EQ(cost_sheet(question("xl", "fp32")).at("z"), 16);
  EXPECT_EQ(cost_sheet(question("xl", "bf16")).at("z"), 18);
  for (int64_t d : {2, 3, 8})
    EXPECT_DOUBLE_EQ(cost_sheet(question("xl", "bf16", d, ShardLevel::optimizer)).at("z"), 6 + 12.0 / double(d));
  EXPECT_EQ(cost_sheet(question("xl", "bf16", 4, ShardLevel::gradients)).at("z"), 2 + 16.0 / 4);
  EXPECT_EQ(cost_sheet(question("xl", "bf16", 4, ShardLevel::parameters)).at("z"), 16.0 / 4);
}

// XXL, "how many parameters": d 16384, d_ff 53248, 126 blocks of two linears.
TEST(ClosedForms, XxlParameters) { EXPECT_EQ(cost_sheet(xxl_question()).at("P"), 219848638464); }

// XXL, "how much memory for fp32 weights, gradients and AdamW, and how many H100": 3.518 TB, 3276 GiB, 44 of 80 GB.
TEST(ClosedForms, XxlState) {
  Sheet s = cost_sheet(xxl_question());
  add_xxl_answers(s, xxl_question());
  EXPECT_EQ(s.at("S"), 16.0 * 219848638464);
  EXPECT_EQ(fmt::format("{:.3f}", s.at("S_TB")), "3.518");
  EXPECT_EQ(s.at("S_GiB"), 3276);
  EXPECT_EQ(s.at("N_H100"), 44);
}

// XXL, "what is saved for the backward pass": 17,547,264 B of bf16 for each token.
TEST(ClosedForms, XxlActivations) { EXPECT_EQ(cost_sheet(xxl_question()).at("A_token"), 17547264); }

// XXL, "from how many devices of 95 GB does FSDP alone fit": 38.
TEST(ClosedForms, XxlDevices) {
  Sheet s = cost_sheet(xxl_question());
  EXPECT_EQ(s.at("N"), 38);
  EXPECT_LE(s.at("S") / 38, 95e9);
  EXPECT_GT(s.at("S") / 37, 95e9);
}

// XXL, "from which batch is the forward pass compute-bound" on TPU v5p, X = 16, Y = 4, M_X = 2, M_Y = 1: about 20.4k
// tokens if collectives overlap, 25.3k if they add up.
TEST(ClosedForms, XxlComputeBoundBatch) {
  CostQuestion q = xxl_question();
  EXPECT_EQ(q.mesh.flops, 4.6e14);
  EXPECT_EQ(q.mesh.bandwidth, 2 * 9e10);
  Sheet s = cost_sheet(q);
  EXPECT_EQ(fmt::format("{:.1f}k", s.at("B_over") / 1e3), "20.4k");
  EXPECT_EQ(fmt::format("{:.1f}k", s.at("B_sum") / 1e3), "25.3k");
  // At that batch, compute takes just as long as what it is compared with, each written out.
  double B = s.at("B_sum"), d = 16384, f = 53248, C = 4.6e14, W = 1.8e11;
  EXPECT_NEAR(4 * B * d * f / (16 * 4 * C), 4 * d * f / (4 * W * 2) + 4 * B * d / (16 * W), 1e-12);
  B = s.at("B_over");
  EXPECT_NEAR(4 * B * d * f / (16 * 4 * C), 4 * d * f / (4 * W * 2), 1e-12);
}

// XXL, "what moves it": a variant's answer is that of the question asked so.
TEST(ClosedForms, XxlVariants) {
  Sheet s = cost_sheet(xxl_question());
  add_xxl_answers(s, xxl_question());
  CostQuestion q = xxl_question();
  q.mesh.data = 8, q.mesh.tensor = 8;
  EXPECT_DOUBLE_EQ(line(s, "mesh of 8 × 8: overlapped"), cost_sheet(q).at("B_over"));
  EXPECT_DOUBLE_EQ(line(s, "mesh of 8 × 8: added up"), cost_sheet(q).at("B_sum"));
  q.mesh.data = 2, q.mesh.tensor = 32;
  EXPECT_TRUE(std::isinf(cost_sheet(q).at("B_over"))) << "beyond Y_max no batch is enough";
  EXPECT_TRUE(std::isinf(line(s, "mesh of 2 × 32: added up")));
  q = xxl_question();
  q.mesh.data_links = 1, q.mesh.tensor_links = 2;
  EXPECT_DOUBLE_EQ(line(s, "links 1 and 2: added up"), cost_sheet(q).at("B_sum"));
  for (double y = 1; y < 20; y += 0.1)
    EXPECT_GE(64 / y * 4.6e14 / (1.8e11 * 2) / (1 - y / s.at("Y_max")), s.at("B_best") * (1 - 1e-12));
  EXPECT_NEAR(line(s, "weights in 8 bits: overlapped"), s.at("B_over") / 2, 1e-9);
  EXPECT_NEAR(line(s, "step: DDP, fp32 gradients"), s.at("B_over") * 8 / 6, 1e-9);
  EXPECT_EQ(s.at("τ_ar"), s.at("τ_seq")) << "dividing the sequence moves no byte more or less";
  EXPECT_EQ(s.at("B_whole_seq"), 16 * 4096);
  EXPECT_LT(s.at("A_seq"), s.at("A_whole"));
}

// Activation checkpointing: k layers in a segment, and the best k, found by trying all.
TEST(ClosedForms, CheckpointingHasABestSegment) {
  Sheet s = cost_sheet(question("xl", "bf16"));
  double L = s.at("L"), a = s.at("a"), c = s.at("c"), ends = s.at("A") - L * a;
  double least = 1e300;
  for (double k = 1; k <= L; ++k) least = std::min(least, (std::ceil(L / k) - 1) * c + k * a + ends);
  EXPECT_DOUBLE_EQ(s.at("A_k"), least);
  EXPECT_NEAR(s.at("k"), s.at("k_best"), 1);
  EXPECT_DOUBLE_EQ(line(s, "no checkpoints: k = L"), s.at("A"));
}

// The bucket model: s/(n·w) + n·o is least at n = √(s/(w·o)), where a bucket has √(s·w·o) bytes.
TEST(ClosedForms, BestBucket) {
  Sheet s = cost_sheet(question("xl", "fp32", 4, ShardLevel::none));
  double bytes = 4.0 * 1998235200, w = 1e11 * 4 / 6, o = 1e-5;
  EXPECT_DOUBLE_EQ(s.at("n_best"), std::sqrt(bytes / (w * o)));
  EXPECT_DOUBLE_EQ(s.at("s_best"), std::sqrt(bytes * w * o));
  for (double n : {0.5, 0.9, 1.1, 2.0})
    EXPECT_GT(bytes / (n * s.at("n_best") * w) + n * s.at("n_best") * o, s.at("T_bucket"));
}

// The table of sizes: parameters exactly, forward FLOPs at batch 4 in the digits that it gives.
TEST(ClosedForms, PublishedSizes) {
  struct Row {
    const char* size;
    double parameters;
    std::vector<const char*> tflop;  // at ctx 128, 256, 512, 1024
  };
  for (const Row& row : {Row{"small", 128625408, {"0.126", "0.257", "0.534", "1.145"}},
                         Row{"medium", 423183360, {"0.429", "0.871", "1.79", "3.79"}},  // the table rounds up 3.7947
                         Row{"large", 969411840, {"0.99", "2.01", "4.11", "8.61"}},
                         Row{"xl", 1998235200, {"2.05", "4.14", "8.44", "17.5"}},
                         Row{"2.7B", 3406809600, {"3.48", "7.01", "14.2", "29.1"}}}) {
    CostQuestion q = question(row.size);
    EXPECT_EQ(cost_sheet(q).at("P"), row.parameters) << row.size;
    for (int i = 0; i < 4; ++i) {
      q.model.ctx = 128 << i;
      std::string digits = row.tflop[size_t(i)];
      size_t decimals = digits.size() - digits.find('.') - 1;
      EXPECT_EQ(fmt::format("{:.{}f}", cost_sheet(q).at("F") / 1e12, decimals), digits)
          << row.size << " " << q.model.ctx;
    }
  }
}

RunConfig run_of(const CostQuestion& q, const std::string& dtype, Pass pass) {
  RunConfig c;
  c.model = q.model, c.batch = q.batch;
  c.device = DeviceType::cuda, c.precision = precision_named(dtype), c.pass = pass;
  return c;
}

// The engine counts the same parameters and FLOPs, exactly.
TEST(ClosedForms, AgreeWithTheWalk) {
  DeviceInfo gpu = card_named("H100-80").info();
  for (const ModelConfig& size : known_sizes())
    for (AttentionKind attention : {AttentionKind::flash, AttentionKind::naive}) {
      CostQuestion q = question(size.name);
      q.model.attention.kind = attention;
      if (size.name == "medium") q.model.kv_heads = 4;
      Prediction p = predict(run_of(q, "fp32", Pass::forward), gpu, make_transformer);
      Sheet s = cost_sheet(q);
      EXPECT_EQ(s.at("P"), double(p.walk.parameters)) << size.name;
      EXPECT_EQ(s.at("F"), p.forward_flops) << size.name;
      EXPECT_EQ(s.at("F_step"), 3 * p.forward_flops) << size.name;
    }
}

// The peak of an eager step, and what ranks send: the equations leave out workspaces, temporaries of a layer, rounding
// to blocks, and that vectors are all-reduced.
TEST(ClosedForms, AreCloseToThePrediction) {
  DeviceInfo gpu = card_named("H100-80").info();
  for (const char* dtype : {"fp32", "bf16"})
    for (AttentionKind attention : {AttentionKind::flash, AttentionKind::naive}) {
      CostQuestion q = question("large", dtype);
      q.model.attention.kind = attention, q.model.ctx = 512;
      double peak = double(predict(run_of(q, dtype, Pass::step), gpu, make_transformer).bytes());
      EXPECT_NEAR(cost_sheet(q).at("D") / peak, 1, 0.02) << dtype << " " << name_of(attention);
    }
  auto group = dist::make_imagined_group(8);
  for (const char* dtype : {"fp32", "bf16"})
    for (ShardLevel level : levels) {
      CostQuestion q = question("large", dtype, 8, level);
      RunConfig c = run_of(q, dtype, Pass::step);
      c.group = group.get(), c.shard.level = level;
      Prediction p = predict(c, gpu, make_transformer);
      Sheet s = cost_sheet(q);
      EXPECT_NEAR(s.at("D") / double(p.bytes()), 1, 0.05) << dtype << " " << name_of(level);
      EXPECT_NEAR(s.at("Q_X") / p.wire_bytes, 1, 0.02) << dtype << " " << name_of(level);
    }
}

// Tensor ranks divide matrices and what is inside a layer; norms and the residual stream stay whole.
TEST(ClosedForms, ProductsOfDataAndTensorRanks) {
  CostQuestion q = question("2.7B", "bf16", 4, ShardLevel::optimizer);
  Sheet one = cost_sheet(q);
  q.mesh.tensor = 2;
  Sheet two = cost_sheet(q);
  EXPECT_EQ(two.at("P_t"), one.at("P_m") / 2 + one.at("P_norm"));
  EXPECT_EQ(two.at("D_moment"), 8 * (one.at("P_m") / 8 + one.at("P_norm")));
  EXPECT_EQ(two.at("A_ffn"), one.at("A_ffn") / 2);
  EXPECT_EQ(two.at("A_norm"), one.at("A_norm"));
  EXPECT_LT(two.at("A_seq"), two.at("A"));
  EXPECT_EQ(two.at("T_math"), one.at("T_math") / 2);
  EXPECT_EQ(two.at("Q_fwd"), 65.0 * 2 * 0.5 * 2 * double(4 * 256) * 2560);
}

TEST(ClosedForms, RefuseWhatCannotBeDivided) {
  auto refused = [](auto change, std::vector<std::string> words) {
    CostQuestion q = question("xl", "fp32", 8, ShardLevel::none);
    change(q);
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { cost_sheet(q); }), words));
  };
  refused([](CostQuestion& q) { q.mesh.tensor = 2; }, {"--tensor 2", "--heads 25"});
  refused([](CostQuestion& q) { q.mesh.tensor = 0; }, {"--tensor"});
  refused([](CostQuestion& q) { q.mesh.data = 0; }, {"--data"});
  refused([](CostQuestion& q) { q.mesh.data = 1, q.shard = ShardLevel::parameters; }, {"--shard parameters", "--data"});
  refused([](CostQuestion& q) { q.shard = ShardLevel::broadcast; }, {"--shard broadcast", "optimizer"});
  refused([](CostQuestion& q) { q.mesh.flops = 0; }, {"--flops"});
  refused([](CostQuestion& q) { q.mesh.memory = -1; }, {"--memory"});
}

// Every equation that a sheet can show stands on the page that explains them.
TEST(ClosedForms, AreAllInTheDocs) {
  std::stringstream page;
  page << std::ifstream(SINTER_SOURCE_DIR "/docs/plan.md").rdbuf();
  std::vector<Sheet> sheets = {cost_sheet(xxl_question())};
  add_xxl_answers(sheets[0], xxl_question());
  for (const char* dtype : {"fp32", "bf16"})
    for (ShardLevel level : levels) {
      CostQuestion q = question("2.7B", dtype, 4, level);
      sheets.push_back(cost_sheet(q));
      q.mesh.tensor = 2, q.model.attention.kind = AttentionKind::naive;
      sheets.push_back(cost_sheet(q));
    }
  for (const Sheet& s : sheets)
    for (const Sheet::Line& l : s.lines)
      if (!l.formula.empty() && l.formula != "0") {
        std::string equation = "`" + l.symbol + " = " + l.formula + "`";
        EXPECT_TRUE(page.str().find(equation) != std::string::npos) << equation << " (" << l.what << ")";
      }
}

}  // namespace
}  // namespace sinter::plan
