// Layouts of an annotated module beside one rank, as `trireme verify` compares them.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/annotated/annotated_run.h"
#include "trireme/verify/comparison.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::verify {
namespace {

using train::Override;
using Settings = std::vector<Override>;

class AnnotatedLayoutsTest : public train::AnnotatedRun {
 protected:
  RecordedRun recorded(const std::string& name, int num_ranks, Settings settings) {
    settings.insert(settings.begin(), {{"train.steps", "2"},
                                       {"optimizer.warmup_steps", "1"},
                                       {"train.evaluate_interval", "0"},
                                       {"checkpoint.interval", "1"},
                                       {"checkpoint.keep", "2"},
                                       {"checkpoint.compare_replicas", "false"},
                                       {"train.check_replicas_interval", "0"},
                                       {"record.activations", "2"},
                                       {"record.gradients", "2"}});
    run(config(name, settings), num_ranks);
    return RecordedRun(folder_ / name);
  }
  // One rank beside ranks with these settings. flaw: what both are told wrongly
  Comparison compared(int num_ranks, const Settings& settings, const Settings& common) {
    std::vector<RecordedRun> runs;
    for (const char* precision : {"fp32", "fp64"}) {
      Settings a = common, b = settings;
      a.emplace_back("train.precision", precision);
      b.insert(b.end(), a.begin(), a.end());
      runs.push_back(recorded(concat("a", precision, number_), 1, a));
      runs.push_back(recorded(concat("b", precision, number_), num_ranks, b));
    }
    ++number_;
    return compare({runs[0], runs[1]}, {runs[2], runs[3]});
  }

  int number_ = 0;
};

TEST_F(AnnotatedLayoutsTest, DifferByRounding) {
  const std::vector<std::pair<int, Settings>> layouts = {
      {2, {{"parallel.tensor", "2"}}}, {4, {{"parallel.tensor", "2"}, {"parallel.zero", "3"}}}};
  for (const auto& [num_ranks, settings] : layouts) {
    const Comparison found = compared(num_ranks, settings, {{"points.chain", "true"}});
    EXPECT_EQ(found.finding(), Finding::kRounding);
    EXPECT_EQ(found.num_steps, 2);
    EXPECT_TRUE(found.left_out.empty());
  }
}

TEST_F(AnnotatedLayoutsTest, AWrongAnnotationIsABugWhereItActs) {
  for (const char* flaw : {"of halves", "unsummed"}) {
    const Comparison found = compared(2, {{"parallel.tensor", "2"}}, {{"points.flaw", flaw}});
    ASSERT_EQ(found.finding(), Finding::kBug) << flaw;
    EXPECT_EQ(found.first()->step, 1) << flaw;
    EXPECT_EQ(found.first()->kind, ProbeKind::kActivation) << flaw;
    EXPECT_EQ(found.first()->name, "up") << flaw;
  }
}

}  // namespace
}  // namespace trireme::verify
