#include "trireme/cli/bench/bench_comm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

std::vector<CommCase> all_cases(const std::vector<int64_t>& sizes, const std::string& dtypes) {
  return combine_cases(parse_operations({"all"}), parse_memories({"ordinary,symmetric"}),
                       parse_dtypes({dtypes}), sizes);
}

TEST(BenchComm, EveryOperationGivesRightValuesOnEveryDtype) {
  for (const int size : {2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& group) {
      const auto cases = all_cases({8, 1032}, "fp64,fp32,bf16,fp16,int64,int32,int16,int8,uint8");
      size_t num_started = 0;
      const auto results =
          run_cases(group, "thread", cases, 1e-6, [&](const CommCase&) { ++num_started; });
      ASSERT_EQ(results.size(), cases.size());
      EXPECT_EQ(num_started, cases.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].what.operation, cases[i].operation);
        EXPECT_EQ(results[i].num_ranks, size);
        EXPECT_GT(results[i].microseconds, 0);
        EXPECT_EQ(results[i].memcpy_microseconds > 0, cases[i].bytes > 0);
        EXPECT_EQ(results[i].loop_microseconds > 0,
                  cases[i].operation == CommOperation::kAllReduce && cases[i].bytes >= 8 * size);
      }
    });
  }
}

TEST(BenchComm, FewerElementsThanRanksLeaveEmptyBlocks) {
  harness::run_ranks(4, [&](comm::Communicator& group) {
    EXPECT_EQ(run_cases(group, "thread", all_cases({4, 12}, "fp32"), 1e-6).size(), 9U * 4 + 1);
  });
}

// Adds one to a single element of what comes out of a broadcast.
class LyingCommunicator : public harness::CountingCommunicator {
 public:
  using CountingCommunicator::CountingCommunicator;
  comm::WorkPtr run(comm::Collective call) override {
    const bool is_broadcast = call.kind == comm::Collective::Kind::kBroadcast;
    const at::Tensor data = call.data;
    comm::WorkPtr work = CountingCommunicator::run(std::move(call));
    if (is_broadcast && rank() == 1 && data.numel() == 25) data[13].add_(1);
    return work;
  }
};

TEST(BenchComm, AWrongValueIsAnErrorOnEveryRankThatNamesThePlace) {
  harness::run_ranks(3, [&](comm::Communicator& group) {
    LyingCommunicator liar(group);
    const CommCase what{CommOperation::kBroadcast, CommMemory::kOrdinary, c10::kInt, 100};
    EXPECT_ERROR(InternalError, run_cases(liar, "thread", {what}, 1e-6),
                 "broadcast of 100 bytes int32 in ordinary memory over thread, 3 ranks: "
                 "rank 1 got 2 at element 13, expected 1");
  });
}

TEST(BenchComm, BandwidthsAndRatiosFollowFromTimes) {
  CommResult result{.what = {.bytes = 1 << 20}, .num_ranks = 4, .microseconds = 100};
  result.memcpy_microseconds = 50;
  result.loop_microseconds = 80;
  result.peers["gloo"] = 1500;
  EXPECT_DOUBLE_EQ(result.algorithm_bandwidth(), 10.48576);
  EXPECT_DOUBLE_EQ(result.bus_bandwidth(), 1.5 * 10.48576);
  EXPECT_DOUBLE_EQ(result.memcpy_ratio(), 0.5);
  EXPECT_DOUBLE_EQ(result.loop_ratio(), 0.8);
  EXPECT_DOUBLE_EQ(result.ratio("gloo"), 15);
  EXPECT_DOUBLE_EQ(result.ratio("mpi"), 0);
}

}  // namespace
}  // namespace trireme::cli
