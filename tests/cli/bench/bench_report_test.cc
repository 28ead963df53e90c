#include "trireme/cli/bench/bench_comm.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

CommResult example() {
  return {.what = {CommOperation::kReduceScatter, CommMemory::kSymmetric, c10::kBFloat16, 65536},
          .transport = "shm",
          .num_ranks = 2,
          .microseconds = 1.25,
          .p99_microseconds = 3.5,
          .memcpy_microseconds = 1};
}

TEST(BenchReport, ALineReadsBackAsItsResult) {
  const CommResult copy = read_line(write_line(example()));
  EXPECT_EQ(copy.what.operation, CommOperation::kReduceScatter);
  EXPECT_EQ(copy.what.memory, CommMemory::kSymmetric);
  EXPECT_EQ(copy.what.dtype, c10::kBFloat16);
  EXPECT_EQ(copy.what.bytes, 65536);
  EXPECT_EQ(copy.transport, "shm");
  EXPECT_EQ(copy.num_ranks, 2);
  EXPECT_EQ(copy.microseconds, 1.25);
  EXPECT_EQ(copy.p99_microseconds, 3.5);
  EXPECT_EQ(copy.memcpy_microseconds, 1);
  EXPECT_EQ(copy.loop_microseconds, 0);
  EXPECT_EQ(write_line(example()).find('\n'), std::string::npos);
  CommResult with_loop = example();
  with_loop.loop_microseconds = 0.75;
  EXPECT_EQ(read_line(write_line(with_loop)).loop_microseconds, 0.75);
}

TEST(BenchReport, LinesThatAreNoResultAreShown) {
  EXPECT_ERROR(Error, read_line("hello"), "a rank printed \"hello\", which is not a result");
  EXPECT_ERROR(Error, read_line("{\"operation\": \"reduce\"}"), "which is not a result");
}

TEST(BenchReport, TheListHasEveryKeyAndThePeers) {
  CommResult result = example();
  result.loop_microseconds = 1;
  result.peers = {{"gloo", 125}};
  const std::vector<CommResult> results = {result, example()};
  const nlohmann::json list = nlohmann::json::parse(json_list(results));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["operation"], "reduce_scatter");
  EXPECT_EQ(list[0]["memory"], "symmetric");
  EXPECT_EQ(list[0]["transport"], "shm");
  EXPECT_EQ(list[0]["dtype"], "bf16");
  EXPECT_EQ(list[0]["bytes"], 65536);
  EXPECT_EQ(list[0]["ranks"], 2);
  EXPECT_DOUBLE_EQ(list[0]["algorithm_bandwidth_gbps"], 52.4288);
  EXPECT_DOUBLE_EQ(list[0]["bus_bandwidth_gbps"], 26.2144);
  EXPECT_DOUBLE_EQ(list[0]["memcpy_ratio"], 0.8);
  EXPECT_DOUBLE_EQ(list[0]["loop_ratio"], 0.8);
  EXPECT_FALSE(list[1].contains("loop_ratio"));
  EXPECT_DOUBLE_EQ(list[0]["gloo_microseconds"], 125);
  EXPECT_DOUBLE_EQ(list[0]["ratio_gloo"], 100);
  EXPECT_FALSE(list[1].contains("ratio_gloo"));
  EXPECT_EQ(json_list(std::span<const CommResult>{}), "[]");
}

TEST(BenchReport, RowsAreAsWideAsTheHeader) {
  const std::vector<std::string> peers = {"gloo", "mpi"};
  CommResult slow = example();
  slow.microseconds = 12345678;
  slow.what.bytes = int64_t{3} << 30;
  slow.peers = {{"gloo", 1}, {"mpi", 1e11}};
  CommResult barrier{.what = {.operation = CommOperation::kBarrier},
                     .transport = "thread",
                     .num_ranks = 64,
                     .microseconds = 4};
  for (const CommResult& result : {example(), slow, barrier}) {
    EXPECT_EQ(table_row(result, peers).size(), table_header(peers).size())
        << table_header(peers) << "\n"
        << table_row(result, peers);
  }
  EXPECT_EQ(table_header({}).size() + 24, table_header(peers).size());
}

}  // namespace
}  // namespace trireme::cli
