#include "trireme/base/machine/machine.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

using harness::TemporaryFolder;

constexpr int64_t kMiB = 1 << 20;

class MachineMemory : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((root_ / path).parent_path());
    OutputFile(root_ / path).write(content);
  }
  // 8 MiB of memory and 2 of swap.
  void write_meminfo() {
    write("proc/meminfo", "MemTotal:        8192 kB\nMemFree: 1 kB\nSwapTotal:  2048 kB\n");
  }
  int64_t bytes() const { return machine_memory_bytes(root_ / "."); }

  const TemporaryFolder root_;
};

TEST_F(MachineMemory, IsThatOfTheMachineWhereNoGroupLimitsIt) {
  write_meminfo();
  EXPECT_EQ(bytes(), 10 * kMiB);
  write("proc/self/cgroup", "0::/user/job\n4:memory:/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/memory/user/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(bytes(), 10 * kMiB);
}

TEST_F(MachineMemory, IsWhatTheTightestGroupAllows) {
  write_meminfo();
  write("proc/self/cgroup", "9:cpu:/elsewhere\n0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "5242880\n");
  EXPECT_EQ(bytes(), 7 * kMiB);
  write("sys/fs/cgroup/user/memory.max", "3145728\n");
  EXPECT_EQ(bytes(), 5 * kMiB);
  write("sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(bytes(), 3 * kMiB);
}

TEST_F(MachineMemory, ReadsGroupsOfTheFirstVersion) {
  write_meminfo();
  write("proc/self/cgroup", "4:cpu,memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4194304\n");
  EXPECT_EQ(bytes(), 6 * kMiB);
}

TEST_F(MachineMemory, IsUnlimitedWhereNothingIsKnown) {
  EXPECT_EQ(bytes(), std::numeric_limits<int64_t>::max());
  write("proc/meminfo", "MemTotal: 9223372036854775807 kB\n");
  write("proc/self/cgroup", "nonsense\n::\n");
  EXPECT_EQ(bytes(), std::numeric_limits<int64_t>::max());
}

TEST(MachineMemoryOfThisMachine, IsKnown) {
  EXPECT_GT(machine_memory_bytes(), 64 * kMiB);
  EXPECT_LT(machine_memory_bytes(), std::numeric_limits<int64_t>::max());
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// The pages that are filled anew when 192 MiB are used a second time.
int64_t faults_of_second_use() {
  const auto use_192_mib = [] {
    std::vector<std::vector<char>> blocks;
    for (int i = 0; i < 8; ++i) blocks.emplace_back(24 * kMiB, 'x');
  };
  use_192_mib();
  const int64_t before = page_faults();
  use_192_mib();
  return page_faults() - before;
}

TEST(FreedMemory, IsFilledAgainWhenReturnedAndOnceWhenKept) {
  constexpr int64_t kFewest = 192 / 2;  // with huge pages
  set_freed_memory(FreedMemory::kReturned);
  EXPECT_GE(faults_of_second_use(), kFewest);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
  const rlimit bounded{.rlim_cur = rlim_t{1} << 40, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &bounded), 0);
  set_freed_memory(FreedMemory::kKept);
  EXPECT_FALSE(keeps_freed_memory());
  EXPECT_GE(faults_of_second_use(), kFewest);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  set_freed_memory(FreedMemory::kKept);
  EXPECT_TRUE(keeps_freed_memory());
  EXPECT_LT(faults_of_second_use(), kFewest);
}
#endif

}  // namespace
}  // namespace trireme
