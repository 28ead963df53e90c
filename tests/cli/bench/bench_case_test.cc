#include "trireme/cli/bench/bench_case.h"

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

TEST(BenchCase, SizesAreBytesOrPowersOf1024) {
  EXPECT_EQ(parse_sizes({"4,64K", "1M", "2G"}),
            (std::vector<int64_t>{4, 65536, 1 << 20, int64_t{2} << 30}));
}

TEST(BenchCase, WordsThatAreNoSizeAreNamed) {
  for (const std::string word : {"12Q", "-4", "0", "K", "4KB", "1.5M", " 4", "9999999999999G"}) {
    EXPECT_ERROR(ConfigError, parse_sizes({word}),
                 "--sizes has \"" + word + "\"; expected bytes such as");
  }
}

TEST(BenchCase, EmptyEntriesAreRefused) {
  for (const std::string word : {"", ",", "4,", ",4", "4,,8"}) {
    EXPECT_ERROR(ConfigError, parse_sizes({word}), "--sizes has an empty entry");
  }
}

TEST(BenchCase, AllNamesEveryOperationAndNamesReadBack) {
  const std::vector<CommOperation> all = parse_operations({"all"});
  EXPECT_EQ(all.size(), 10U);
  for (const CommOperation operation : all) {
    EXPECT_EQ(parse_operations({name_of(operation)}), std::vector<CommOperation>{operation});
  }
  EXPECT_ERROR(ConfigError, parse_operations({"allreduce"}), "expected one of all_reduce, reduce");
  EXPECT_ERROR(ConfigError, parse_memories({"shared"}), "expected one of ordinary, symmetric");
  EXPECT_ERROR(ConfigError, parse_dtypes({"float"}), "expected one of fp64, fp32");
  EXPECT_ERROR(ConfigError, parse_rank_counts({"2,two"}), "--ranks has \"two\"");
}

TEST(BenchCase, EveryCombinationOccursOnceAndBarrierOnce) {
  const auto cases = combine_cases({CommOperation::kBarrier, CommOperation::kReduce},
                                   parse_memories({"ordinary,symmetric"}),
                                   parse_dtypes({"fp32,bf16"}), {4, 8, 16});
  ASSERT_EQ(cases.size(), 1U + 2 * 2 * 3);
  EXPECT_EQ(cases[0].bytes, 0);
  EXPECT_EQ(cases[1].bytes, 4);
  EXPECT_EQ(cases[2].bytes, 8);
  EXPECT_EQ(cases.back().memory, CommMemory::kSymmetric);
  EXPECT_EQ(cases.back().dtype, c10::kBFloat16);
}

TEST(BenchCase, SizesMustHoldWholeItems) {
  EXPECT_ERROR(
      ConfigError,
      combine_cases({CommOperation::kReduce}, {CommMemory::kOrdinary}, {c10::kDouble}, {12}),
      "--sizes has 12 bytes; expected a multiple of 8, the size of fp64");
}

// NVIDIA/nccl-tests, doc/PERFORMANCE.md.
TEST(BenchCase, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kReduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CommOperation::kAllReduce, 1), 0);
}

}  // namespace
}  // namespace trireme::cli
