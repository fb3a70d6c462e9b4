// How long collectives take: the ring's closed form, what a slower hop costs, and measured curves.
#include "plan/network.h"

#include <fstream>

#include "plan/machine.h"
#include "support/temporary_folder.h"
#include "support/values.h"

namespace sinter::plan {
namespace {

constexpr CollectiveKind reduces = CollectiveKind::all_reduce, gathers = CollectiveKind::all_gather,
                         scatters = CollectiveKind::reduce_scatter;

Network plain() {
  Network n;
  n.devices_per_node = 8;
  n.device_bandwidth = 1e11, n.node_bandwidth = 8e10;
  return n;
}

TEST(Network, IsARingWithoutLatencies) {
  Network n = plain();
  for (int64_t ranks : {2, 4, 8}) {
    double part = double(ranks - 1) / double(ranks);
    EXPECT_NEAR(n.seconds(reduces, 1e9, {ranks, ranks}), 2 * part * 1e9 / 1e11, 1e-12);
    EXPECT_NEAR(n.seconds(gathers, 1e9, {ranks, ranks}), part * 1e9 / 1e11, 1e-12);
    EXPECT_NEAR(n.seconds(scatters, 1e9, {ranks, ranks}), part * 1e9 / 1e11, 1e-12);
  }
  EXPECT_EQ(n.seconds(reduces, 1e9, {1, 1}), 0);
  // Between nodes all ranks of one share its links; a group with one rank in each has an eighth of them.
  EXPECT_NEAR(n.seconds(gathers, 1e9, {16, 8}), 15.0 / 16 * 1e9 / 8e10, 1e-12);
  EXPECT_NEAR(n.seconds(gathers, 1e9, {16, 1}), 15.0 / 16 * 1e9 / 1e10, 1e-12);
}

TEST(Network, GrowsWithBytesAndRanksAndLatency) {
  for (const std::string& name : known_networks()) {
    Network n = network_named(name);
    for (CollectiveKind kind : {reduces, gathers, scatters}) {
      double last = 0;
      for (int64_t ranks = 2; ranks <= 4096; ranks *= 2) {
        double now = n.seconds(kind, 1e8, {ranks, std::min(ranks, n.devices_per_node)});
        EXPECT_GE(now, last) << name << " " << name_of(kind) << " " << ranks;
        EXPECT_GT(n.seconds(kind, 2e8, {ranks, std::min(ranks, n.devices_per_node)}), now);
        last = now;
      }
    }
    Network slow = n;
    slow.node_latency += 1e-3;
    EXPECT_GT(slow.seconds(gathers, 1e6, {1 << 14, 1}), n.seconds(gathers, 1e6, {1 << 14, 1}));
  }
}

TEST(Network, ReadsMeasuredCurves) {
  Network n = plain();
  n.curves[reduces][4] = {{1e6, 1e-3}, {1e8, 1e-2}};
  EXPECT_NEAR(n.seconds(reduces, 1e6, {4, 4}), 1e-3, 1e-9);
  EXPECT_NEAR(n.seconds(reduces, 1e7, {4, 4}), std::sqrt(1e-3 * 1e-2), 1e-9);
  EXPECT_NEAR(n.seconds(reduces, 1e9, {4, 4}), 1e-2 * std::sqrt(10), 1e-9);
  EXPECT_NE(n.seconds(reduces, 1e6, {8, 8}), 1e-3) << "of other ranks";
}

class PlanFiles : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    std::filesystem::create_directories(folder_);
  }
  std::string file(const std::string& text) const {
    std::string path = (folder_ / "f.json").string();
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(PlanFiles, OfNetworksAreCheckedFieldByField) {
  Network n = network_named(file(R"({"name": "x", "devices_per_node": 4, "device_bandwidth": 1e9,
    "curves": [{"collective": "all_gather", "ranks": 2, "bytes": [1, 2], "seconds": [1e-6, 2e-6]}]})"));
  EXPECT_EQ(n.name, "x");
  EXPECT_EQ(n.node_bandwidth, 1e9);
  EXPECT_EQ(n.curves.at(gathers).at(2).size(), 2u);
  auto refused = [&](const std::string& text, const std::vector<std::string>& parts) {
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { network_named(file(text)); }), parts)) << text;
  };
  refused(R"({"devices_per_node": 0, "device_bandwidth": 1e9})", {"line 1, devices_per_node", "0 is not between"});
  refused("{\"devices_per_node\": 1,\n\"device_bandwidth\": \"fast\"}", {"line 2, device_bandwidth", "not a number"});
  refused("{\"devices_per_node\": 1,\n\"device_bandwidth\": 1e9,\n\"speed\": 3}", {"line 3, speed", "unknown"});
  refused(R"({"devices_per_node": 1, "device_bandwidth": 1e9, "curves": [{"collective": "all", "ranks": 2}]})",
          {"collective", "all is unknown", "all_reduce"});
  refused(R"({"devices_per_node": 1, "device_bandwidth": 1e9, "curves": [{"collective": "all_reduce", "ranks": 2,
            "bytes": [2, 1], "seconds": [1, 1]}]})",
          {"bytes", "must grow"});
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { network_named("nowhere"); }), {"nowhere", "h100", "a100"}));
}

TEST_F(PlanFiles, OfMachinesAreWhatTheyWereWrittenAs) {
  for (const std::string& name : known_machines()) {
    Machine m = machine_named(name);
    Machine again = machine_named(file(machine_json(m)));
    EXPECT_EQ(machine_json(again), machine_json(m)) << name;
    EXPECT_EQ(again.target.compute_capability, m.target.compute_capability) << name;
    EXPECT_FALSE(again.hash.empty());
    EXPECT_GT(m.memory_bytes, 1e9) << name;
  }
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { machine_named("t4").product("bf16"); }), {"t4", "bf16", "fp16"}));
  std::string text = machine_json(machine_named("h100"));
  auto without = [&](const std::string& from, const std::string& to) {
    std::string t = text;
    return t.replace(t.find(from), from.size(), to);
  };
  auto refused = [&](const std::string& t, const std::vector<std::string>& parts) {
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { machine_named(file(t)); }), parts)) << t;
  };
  refused(without("\"reach\": 0.72", "\"reach\": 7"), {"products.bf16.reach", "7 is not between"});
  refused(without("\"datasheet\"", "\"guess\""), {"source", "guess", "measured"});
  refused(without("\"H100", "\"K80"), {"gpu", "K80"});
  // Whatever is cut off or changed: an answer or a refusal, and nothing else.
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    std::string t = text;
    if (i % 2) t.resize(random() % t.size());
    else t[random() % t.size()] = char(32 + random() % 95);
    try {
      machine_named(file(t));
    } catch (const Error& e) {
      EXPECT_EQ(int(e.kind()), int(ErrorKind::usage)) << t;
    }
  }
}

}  // namespace
}  // namespace sinter::plan
