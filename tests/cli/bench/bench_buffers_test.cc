#include "trireme/cli/bench/bench_case.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::cli {
namespace {

TEST(BenchBuffers, PatternsAreRightOnlyAfterTheOperation) {
  for (const int size : {2, 3}) {
    harness::run_ranks(size, [](comm::Communicator& group) {
      for (const CommOperation operation : parse_operations({"all"})) {
        if (operation == CommOperation::kBarrier) continue;
        CaseBuffers buffers(group, {operation, CommMemory::kOrdinary, c10::kFloat, 400});
        buffers.fill_pattern();
        // Only a rank that gets nothing new has nothing wrong before it ran.
        const bool gets_nothing =
            (operation == CommOperation::kBroadcast && group.rank() == 0) ||
            ((operation == CommOperation::kReduce || operation == CommOperation::kGather) &&
             group.rank() != 0);
        EXPECT_EQ(buffers.first_error().empty(), gets_nothing) << name_of(operation);
        buffers.run();
        EXPECT_EQ(buffers.first_error(), "") << name_of(operation);
      }
    });
  }
}

TEST(BenchBuffers, ZerosStayZerosHoweverOftenTheyAreSummed) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    CaseBuffers buffers(group, {CommOperation::kAllReduce, CommMemory::kSymmetric, c10::kHalf, 64});
    buffers.fill_zero();
    for (int i = 0; i < 200; ++i) buffers.run();
    EXPECT_NE(buffers.first_error().find("got 0 at element 0"), std::string::npos);
  });
}

}  // namespace
}  // namespace trireme::cli
