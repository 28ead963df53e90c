#include "trireme/cli/bench/bench_peers.h"

#include <sched.h>

#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(BenchLaunch, TakesWhatRanksPrint) {
  EXPECT_EQ(capture_local_ranks(shell("[ $RANK = 1 ] && echo $RANK of $WORLD_SIZE || true"), 3),
            "1 of 3\n");
}

TEST(BenchLaunch, OutputBelongsToThisProcessAgainAfterwards) {
  testing::internal::CaptureStdout();
  capture_local_ranks(shell("echo hidden"), 1);
  std::puts("shown");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "shown\n");
}

TEST(BenchLaunch, ExitCodesBecomeTheirExceptions) {
  EXPECT_ERROR(ConfigError, capture_local_ranks(shell("echo bad size >&3; exit 2"), 1), "bad size");
  EXPECT_ERROR(CommError, capture_local_ranks(shell("exit 3"), 1), "rank 0 exited with code 3");
  EXPECT_ERROR(CommError, capture_local_ranks(shell("kill -9 $$"), 1), "killed by signal 9");
  EXPECT_ERROR(InternalError, capture_local_ranks(shell("exit 1"), 1), "exited with code 1");
  EXPECT_ERROR(InternalError, capture_local_ranks({"/no/such/program"}, 1), "cannot start");
}

int num_cores_of_this_thread() {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof(cores), &cores);
  return CPU_COUNT(&cores);
}

TEST(BenchLaunch, RanksAreBoundToCoresWhileThereAreEnough) {
  const int num_cores = num_cores_of_this_thread();
  std::set<int> used;
  for (int rank = 0; rank < num_cores; ++rank) {
    std::thread([&] {
      bind_to_core(rank, num_cores);
      EXPECT_EQ(num_cores_of_this_thread(), 1);
      used.insert(sched_getcpu());
    }).join();
  }
  EXPECT_EQ(used.size(), static_cast<size_t>(num_cores));
  std::thread([&] {
    bind_to_core(0, num_cores + 1);
    EXPECT_EQ(num_cores_of_this_thread(), num_cores);
  }).join();
}

TEST(BenchLaunch, ProgramsAreFoundInThePath) {
  EXPECT_EQ(find_program("sh").filename(), "sh");
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_TRUE(find_program("no-such-program-here").empty());
  EXPECT_TRUE(find_program("/bin/no-such-program-here").empty());
}

}  // namespace
}  // namespace trireme::cli
