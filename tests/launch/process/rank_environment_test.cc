#include "trireme/launch/process/rank_environment.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(RankEnvironment, HasTorchrunsVariables) {
  const Environment variables =
      rank_environment({{"PATH", "/bin"}, {"TORCHELASTIC_RUN_ID", "outer"}},
                       {.rank = 5, .size = 6, .local_rank = 1, .local_size = 2}, "job-1");
  EXPECT_EQ(variables.at("RANK"), "5");
  EXPECT_EQ(variables.at("WORLD_SIZE"), "6");
  EXPECT_EQ(variables.at("LOCAL_RANK"), "1");
  EXPECT_EQ(variables.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(variables.at("TRIREME_JOB"), "job-1");
  EXPECT_EQ(variables.at("PATH"), "/bin");
  EXPECT_FALSE(variables.contains("TORCHELASTIC_RUN_ID"));
  EXPECT_GE(std::stoi(variables.at("OMP_NUM_THREADS")), 1);
}

TEST(RankEnvironment, KeepsTheNumberOfThreadsThatTheUserChose) {
  EXPECT_EQ(rank_environment({{"OMP_NUM_THREADS", "3"}}, {}, "job").at("OMP_NUM_THREADS"), "3");
}

}  // namespace
}  // namespace trireme::launch
