// What a container lets us use, in either version of cgroups.
#include "system/host.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temporary_folder.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

class GroupLimitsTest : public FolderTest {
 protected:
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << "\n";
  }
  GroupLimits limits() const { return group_limits(folder_.string()); }

  static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
};

TEST_F(GroupLimitsTest, AreNoneWithoutGroups) {
  EXPECT_EQ(limits().cores, std::numeric_limits<double>::infinity());
  EXPECT_EQ(limits().memory_bytes, unlimited);
  EXPECT_EQ(limits().memory_left, unlimited);
}

TEST_F(GroupLimitsTest, OfVersion2AreTheTightestOnTheWayUp) {
  put("proc/self/cgroup", "0::/job/rank");
  put("sys/fs/cgroup/job/rank/cpu.max", "max 100000");
  put("sys/fs/cgroup/job/cpu.max", "250000 100000");
  put("sys/fs/cgroup/job/rank/memory.max", "max");
  put("sys/fs/cgroup/job/rank/memory.current", "5");
  put("sys/fs/cgroup/job/memory.max", "1000");
  put("sys/fs/cgroup/job/memory.current", "700");
  put("sys/fs/cgroup/job/memory.stat", "anon 400\ninactive_file 300");
  EXPECT_EQ(limits().cores, 2.5);
  EXPECT_EQ(limits().memory_bytes, 1000);
  EXPECT_EQ(limits().memory_left, 600) << "page cache is given back";
}

TEST_F(GroupLimitsTest, OfVersion1HaveAFolderForEachController) {
  put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/b\n1:name=systemd:/c");
  put("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "150000");
  put("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000");
  put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2500");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "2500");
  EXPECT_EQ(limits().cores, 1.5);
  EXPECT_EQ(limits().memory_bytes, 2000);
  EXPECT_EQ(limits().memory_left, 0);
}

// Inside a container the path is that of the host's tree, and the container's own group is mounted as the root.
TEST_F(GroupLimitsTest, AreFoundAtTheRootOfAContainer) {
  put("proc/self/cgroup", "0::/not/mounted/here");
  put("sys/fs/cgroup/cpu.max", "400000 100000");
  put("sys/fs/cgroup/memory.max", "100");
  put("sys/fs/cgroup/memory.current", "10");
  EXPECT_EQ(limits().cores, 4);
  EXPECT_EQ(limits().memory_left, 90);
}

TEST(Host, IsThisOne) {
  EXPECT_GE(host_cores(), 1);
  EXPECT_GT(host_memory_bytes(), 0);
  EXPECT_LE(host_free_bytes(), host_memory_bytes());
}

}  // namespace
}  // namespace sinter
