// Where the time of a pass goes, from a made-up profile: two lanes that overlap, as a captured step has.
#include "lab/machine.h"
#include "lab/profile/profile_model.h"
#include "lab/record.h"
#include "support/values.h"

namespace sinter::lab {
namespace {

uint32_t range_at(std::initializer_list<std::pair<const char*, RangeKind>> names) {
  std::vector<std::unique_ptr<Range>> open;
  for (auto [name, kind] : names) open.push_back(std::make_unique<Range>(name, kind));
  uint32_t id = Range::current().id;
  while (!open.empty()) open.pop_back();
  return id;
}

// Two passes of 10 ms: a forward product (2 ms), flash attention (1), a norm (0.5), backward two products at the same
// time (3 and 2, from the same moment), an update (1), and a copy that belongs to no range (0.5).
Profile made_up() {
  constexpr RangeKind module = RangeKind::module, phase = RangeKind::phase, op = RangeKind::op;
  uint32_t forward = range_at({{"step", module}, {"forward", phase}, {"ffn", module}, {"linear", op}});
  uint32_t flash =
      range_at({{"step", module}, {"forward", phase}, {"attn", module}, {"flash", module}, {"attention", op}});
  uint32_t norm = range_at({{"step", module}, {"forward", phase}, {"norm", module}, {"rms_norm", op}});
  uint32_t input = range_at({{"step", module}, {"backward", phase}, {"ffn", module}, {"linear_input_grad", op}});
  uint32_t weight = range_at({{"step", module}, {"backward", phase}, {"ffn", module}, {"linear_weight_grad", op}});
  uint32_t update = range_at({{"step", module}, {"optimizer", phase}, {"adamw", op}});
  Profile p;
  p.source = "cupti";
  p.passes = 2;
  for (int64_t pass = 0; pass < 2; ++pass) {
    int64_t t0 = pass * 100'000'000;
    auto add = [&](const char* name, uint32_t range, double begin_ms, double end_ms, int stream) {
      Activity a;
      a.name = name, a.range = range, a.stream = stream;
      a.begin_ns = t0 + int64_t(begin_ms * 1e6), a.end_ns = t0 + int64_t(end_ms * 1e6);
      p.trace.device.push_back(a);
    };
    add("gemm", forward, 0.5, 2.5, 1);
    add("flash", flash, 2.5, 3.5, 1);
    add("norm", norm, 3.5, 4, 1);
    add("gemm", input, 4, 7, 1);
    add("gemm", weight, 4, 6, 2);
    add("adamw", update, 7, 8, 2);
    add("memcpy", 0, 8, 8.5, 1);
    p.trace.steps.emplace_back(t0, t0 + 10'000'000);
    p.plain_ms.push_back(9.5), p.profiled_ms.push_back(10), p.device_ms.push_back(9);
  }
  auto cost = [&](uint32_t range, double flops) { p.ops[range] = {2, 2 * flops, 2 * flops, 0, 0}; };
  cost(forward, 9e9), cost(flash, 1e9), cost(input, 9e9), cost(weight, 9e9), cost(norm, 0), cost(update, 0);
  return p;
}

TEST(TimeParts, AddUpToThePass) {
  Profile p = made_up();
  plan::Floor floor{4, 0.75};
  Json r = profile_result({{"dtype", "bf16"}, {"mode", "compiled"}, {"pass", "step"}}, p, "", {1e12, 1e12}, floor);
  std::map<std::string, Json> parts;
  for (const Json& x : r["parts"]) parts[x["part"]] = x;
  ASSERT_EQ(parts.size(), 4u);
  auto expect = [&](const std::string& part, double ms, double kernels, double least) {
    EXPECT_NEAR(parts[part]["ms"].get<double>(), ms, 1e-9) << part;
    EXPECT_NEAR(parts[part]["kernels"].get<double>(), kernels, 1e-9) << part;
    EXPECT_NEAR(parts[part]["floor_ms"].get<double>(), least, 1e-9) << part;
  };
  expect("products", 7, 3, 3.6);
  expect("attention", 1, 1, 0.4);
  expect("norms, pointwise, the rest", 1, 2, 0);
  expect("optimizer", 1, 1, 0.75);
  EXPECT_NEAR(r["floor_ms"].get<double>(), 4.75, 1e-9);
  EXPECT_NEAR(r["floor_multiple"].get<double>(), 2, 1e-9);
  EXPECT_NEAR(r["device_time"]["busy_ms"].get<double>(), 8, 1e-9);
}

TEST(TimeParts, AreShownWithWhatOverlapsAndWhatIsIdle) {
  Json config = {{"dtype", "bf16"}, {"mode", "compiled"}, {"pass", "step"}, {"size", "small"}, {"attention", "flash"}};
  Json record = new_record("profile model", machine_block(DeviceType::cpu), config);
  record["results"].push_back(profile_result(config, made_up(), "", {1e12, 1e12}, {4, 0.75}));
  View v = profile_view(record);
  const Table& t = v.tables.at(0);
  EXPECT_EQ(t.title, "Where the time goes: compiled step, 9.500 ms = 2.00 × its floor of 4.75 ms");
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& row : t.rows) rows[row[0]] = row;
  EXPECT_EQ(rows["ran beside another"].at(1), "-2.000");
  EXPECT_EQ(rows["idle"].at(1), "2.000");
  EXPECT_EQ(rows["recorded pass"].at(1), "10.00");
  EXPECT_EQ(rows["products"].at(1), "7.000");
  EXPECT_EQ(rows["products"].back(), "1.94");
}

TEST(TimeParts, DoWithoutAFloor) {
  Json r = profile_result(Json::object(), made_up(), "", {});
  EXPECT_FALSE(r.contains("floor_ms"));
  for (const Json& x : r["parts"]) EXPECT_FALSE(x.contains("floor_ms"));
}

}  // namespace
}  // namespace sinter::lab
