#include "trireme/cli/bench/bench_peers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

CommResult result_of(CommOperation operation, int64_t bytes, double microseconds) {
  return {.what = {.operation = operation, .bytes = bytes},
          .num_ranks = 2,
          .microseconds = microseconds,
          .p99_microseconds = 2 * microseconds,
          .memcpy_microseconds = microseconds / 2,
          .loop_microseconds = microseconds / 4};
}

TEST(BenchPeers, RoundsBecomeTheirMedian) {
  const auto results = median_of_rounds({{result_of(CommOperation::kReduce, 4, 30)},
                                         {result_of(CommOperation::kReduce, 4, 10)},
                                         {result_of(CommOperation::kReduce, 4, 20)}});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_DOUBLE_EQ(results[0].microseconds, 20);
  EXPECT_DOUBLE_EQ(results[0].p99_microseconds, 40);
  EXPECT_DOUBLE_EQ(results[0].memcpy_microseconds, 10);
  EXPECT_DOUBLE_EQ(results[0].loop_microseconds, 5);
}

TEST(BenchPeers, TimesGoToTheSameCaseAlone) {
  std::vector<CommResult> results = {result_of(CommOperation::kReduce, 4, 10),
                                     result_of(CommOperation::kReduce, 8, 10),
                                     result_of(CommOperation::kAllReduce, 4, 10)};
  results.push_back(results[0]);
  results.back().what.memory = CommMemory::kSymmetric;
  results.push_back(results[0]);
  results.back().what.dtype = c10::kHalf;
  add_peer(
      results, "gloo",
      {{result_of(CommOperation::kReduce, 4, 100)}, {result_of(CommOperation::kReduce, 4, 300)}});
  EXPECT_DOUBLE_EQ(results[0].ratio("gloo"), 20);
  EXPECT_DOUBLE_EQ(results[1].ratio("gloo"), 0);
  EXPECT_DOUBLE_EQ(results[2].ratio("gloo"), 0);
  EXPECT_DOUBLE_EQ(results[3].ratio("gloo"), 20);  // a peer has one kind of memory
  EXPECT_DOUBLE_EQ(results[4].ratio("gloo"), 0);
}

TEST(BenchPeers, MissingPeersSayHowToGetThem) {
  const PeerOptions nowhere{"/no/such/folder", "/no/such/python"};
  EXPECT_ERROR(ConfigError, check_peers({"nccl"}, nowhere),
               "--compare has \"nccl\"; expected one of gloo, mpi");
  EXPECT_ERROR(ConfigError, check_peers({"gloo"}, nowhere), "pip install torch");
  EXPECT_ERROR(ConfigError, check_peers({"mpi"}, nowhere), "apt-get install libopenmpi-dev");
  check_peers({}, nowhere);
}

// Open MPI may be there when its peer is not.
TEST(BenchPeers, AnMpirunWithoutThePeerIsNotCalledMissing) {
  const harness::TemporaryFolder folder;
  const std::filesystem::path mpirun = folder.path() / "mpirun";
  std::ofstream(mpirun) << "#!/bin/sh\n";
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  EXPECT_ERROR(ConfigError, check_peers({"mpi"}, {"/no/such/folder", "python3"}),
               "/no/such/folder/mpi_peer, which was not built; build the target mpi_peer");
  ::setenv("PATH", folder.path().c_str(), 1);
  std::filesystem::remove(mpirun);
  EXPECT_ERROR(ConfigError, check_peers({"mpi"}, {"/no/such/folder", "python3"}),
               "mpirun is not in PATH");
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace trireme::cli
