#include "trireme/train/profile/profile_report.h"

#include <gtest/gtest.h>

#include "tests/train/profile/synthetic.h"

namespace trireme::train {
namespace {

constexpr int64_t kEnd = 10'000'000;  // 10 ms: operators of a tenth are no short ones

ProfileReport report_of(const std::vector<RankProfile>& ranks) {
  return make_report(ranks, states_of(ranks));
}

// The step's tenths from `begin` to `end`.
Span tenths(int begin, int end) { return {begin * kEnd / 10, end * kEnd / 10}; }

TEST(Report, AddsUp) {
  RankProfile rank = one_step(0, kEnd);
  rank.calls = {{"all_reduce", 0, 1, 4000, 0, tenths(4, 6), true},
                {"all_reduce", 0, 2, 4000, 0, tenths(9, 10), false}};
  rank.operators = {{"aten::mm", tenths(1, 8), 0, -1, 1400}};
  const ProfileReport report = report_of({rank, one_step(1, kEnd)});
  EXPECT_EQ(report.first_step, 6);
  EXPECT_EQ(report.last_step, 6);
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].computing_ns, 8 * kEnd / 10);
  EXPECT_EQ(report.ranks[0].communication_ns, 3 * kEnd / 10);
  EXPECT_EQ(report.ranks[0].hidden_ns, 2 * kEnd / 10);
  EXPECT_EQ(report.ranks[0].exposed_ns, kEnd / 10);
  EXPECT_EQ(report.ranks[1].rank, 1);
  EXPECT_NEAR(report.hidden_fraction(), 2.0 / 3, 1e-12);
  ASSERT_EQ(report.calls.size(), 2u);  // background or not are two
  EXPECT_TRUE(report.calls[0].is_background);
  EXPECT_EQ(report.calls[0].bytes, 4000);
  EXPECT_DOUBLE_EQ(report.calls[0].bytes_per_second(), 4000 / 2e-3);
  EXPECT_EQ(report.operators[0].name, "forward_backward: other code");
  EXPECT_EQ(report.operators[1].name, "aten::mm");
  EXPECT_EQ(report.operators[1].flops, 1400);
}

TEST(Report, AWaitForTheLastRankIsNoBandwidth) {
  RankProfile early = one_step(0, kEnd);
  RankProfile late = one_step(1, kEnd);
  early.calls = {{"all_reduce", 0, 1, 1000, 0, tenths(2, 6), false}};
  late.calls = {{"all_reduce", 0, 1, 1000, 0, tenths(5, 6), false}};
  const ProfileReport report = report_of({early, late});
  ASSERT_EQ(report.calls.size(), 1u);
  EXPECT_EQ(report.calls[0].count, 2);
  EXPECT_EQ(report.calls[0].time_ns, 5 * kEnd / 10);
  EXPECT_EQ(report.calls[0].wait_ns, 3 * kEnd / 10);
  EXPECT_DOUBLE_EQ(report.calls[0].bytes_per_second(), 2000 / 2e-3);
  EXPECT_EQ(report.ranks[0].late_ns, 3 * kEnd / 10);
  EXPECT_EQ(report.bound, Bound::kCommunication);
  EXPECT_NE(report.reason.find("25 % of the step, 60 % of it waiting"), std::string::npos)
      << report.reason;
}

TEST(Report, WithoutCommunicationNothingIsHidden) {
  EXPECT_EQ(report_of({one_step(0, kEnd)}).hidden_fraction(), 0);
  EXPECT_EQ(CallTotals().bytes_per_second(), 0);
}

TEST(Bound, DataWhenLoadingIsTheLargestPart) {
  RankProfile rank = one_step(0, kEnd);
  rank.phases = {{Phase::kData, tenths(0, 3)}, {Phase::kForwardBackward, tenths(3, 10)}};
  const ProfileReport report = report_of({rank});
  EXPECT_EQ(report.bound, Bound::kData);
  EXPECT_EQ(report.reason, "loading data takes 30 % of the step");
}

TEST(Bound, CommunicationOnlyWhereNothingHidesIt) {
  RankProfile rank = one_step(0, kEnd);
  rank.operators = {{"aten::mm", tenths(1, 8)}};
  rank.calls = {{"all_reduce", 0, 1, 8, 0, tenths(2, 8), true}};
  EXPECT_EQ(report_of({rank}).bound, Bound::kComputation);
  rank.operators.push_back({"trireme::wait", tenths(5, 8)});
  EXPECT_EQ(report_of({rank}).bound, Bound::kCommunication);
}

TEST(Bound, MemoryWhenMatrixProductsAreTheLesserPart) {
  RankProfile rank = one_step(0, kEnd);
  rank.operators = {{"aten::mm", tenths(1, 4)}, {"aten::copy_", tenths(4, 10)}};
  EXPECT_EQ(report_of({rank}).bound, Bound::kMemory);
  rank.operators = {{"aten::mm", tenths(1, 8)}, {"aten::copy_", tenths(8, 10)}};
  EXPECT_EQ(report_of({rank}).bound, Bound::kComputation);
}

TEST(Bound, OverheadWhenOperatorsAreShort) {
  RankProfile rank = one_step(0, kEnd);
  for (int64_t begin = kEnd / 10; begin < kEnd; begin += 8000) {
    rank.operators.push_back({"aten::mm", {begin, begin + 5000}});
  }
  EXPECT_EQ(report_of({rank}).bound, Bound::kOverhead);
}

TEST(Bound, OverheadWhenAGpuIdles) {
  RankProfile rank = one_step(0, kEnd);
  rank.operators = {{"ampere_sgemm", tenths(2, 6), 7, 0}};
  const ProfileReport report = report_of({rank});
  EXPECT_EQ(report.bound, Bound::kOverhead);
  EXPECT_EQ(report.reason, "nothing runs in 50 % of the step");
  rank.operators = {{"ampere_sgemm", tenths(1, 10), 7, 0}};
  EXPECT_EQ(report_of({rank}).bound, Bound::kComputation);
  rank.operators = {{"vectorized_elementwise_kernel", tenths(1, 10), 7, 0}};
  EXPECT_EQ(report_of({rank}).bound, Bound::kMemory);
}

TEST(Bound, HasAName) {
  EXPECT_STREQ(name_of(Bound::kData), "data");
  EXPECT_STREQ(name_of(Bound::kComputation), "computation");
}

}  // namespace
}  // namespace trireme::train
