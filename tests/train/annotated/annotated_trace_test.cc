// A task's step is traced and planned, and runs as it is planned.
#include "trireme/train/annotated/annotated_trace.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/annotated/annotated_run.h"
#include "trireme/plan/shard/shard_notes.h"
#include "trireme/train/annotated/note_text.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AnnotatedTraceTest : public AnnotatedRun {
 protected:
  // Wide enough to be split evenly, and only planned.
  std::vector<Override> planned(std::vector<Override> more = {}) const {
    more.insert(more.begin(), {{"points.width", "8"}, {"points.flaw", "none annotated"}});
    return more;
  }

  // The value of parallel.notes, for devices so slow that small tensors are worth splitting.
  std::string notes_for(const RunConfig& config, int64_t ranks) {
    const auto& task = task_of<const AnnotatedTask>(config);
    plan::Cluster cluster{.device = plan::device_named("h100-sxm"), .devices_per_node = ranks};
    cluster.device.peak_single = cluster.device.memory_rate = 1e6;
    cluster.device.link_seconds = 0;
    const plan::ShardAxes axes = {{"tensor", {.ranks = ranks, .stride = 1}}};
    const spmd::Graph graph = task.trace(config, config.train.micro_batch);
    const plan::ShardPlan plan = plan::plan_shards(graph, {.cluster = cluster, .axes = axes});
    EXPECT_GT(plan.moves.size(), 0u);
    return note_text(plan::notes_of(graph, plan, axes, task.annotations()), task.annotations());
  }
};

TEST_F(AnnotatedTraceTest, APlannedRunHasTheNumbersOfOneRank) {
  const Override micro = {"train.micro_batch", "2"};
  for (const Override& variant : std::vector<Override>{{"points.chain", "false"},
                                                       {"points.chain", "true"},
                                                       {"points.dropout", "0.4"},
                                                       {"train.recompute", "full"}}) {
    const std::string title = variant.first + variant.second;
    run(config(title + " one", planned({micro, variant})), 1);
    for (const int tensor : {2, 4}) {
      std::vector<Override> keys = planned({micro, variant});
      keys.emplace_back("parallel.tensor", std::to_string(tensor));
      const std::string notes = notes_for(config("traced", keys), tensor);
      keys.emplace_back("parallel.notes", notes);
      const std::string name = concat(title, " ", tensor);
      run(config(name, keys), tensor);
      expect_same(name, title + " one", 1e-10);
    }
  }
}

TEST_F(AnnotatedTraceTest, APlannedRunGoesWithDataRanksAndZeroAndResumes) {
  run(config("one", planned({{"train.micro_batch", "3"}})), 1);
  std::vector<Override> keys = planned({{"train.micro_batch", "3"}, {"parallel.tensor", "2"}});
  keys.emplace_back("parallel.notes", notes_for(config("traced", keys), 2));
  for (const char* zero : {"0", "1", "3"}) {
    std::vector<Override> with_zero = keys;
    with_zero.emplace_back("parallel.zero", zero);
    const std::string whole = concat("whole ", zero), cut = concat("cut ", zero);
    run(config(whole, with_zero), 4);
    expect_same(whole, "one", 1e-10);
    EXPECT_EQ(run(config(cut, with_zero), 4, /*stop_after=*/3), Outcome::kStopped);
    EXPECT_EQ(run(config(cut, with_zero), 4), Outcome::kFinished);
    expect_same(cut, whole, 0);
  }
}

TEST_F(AnnotatedTraceTest, AnotherModelThanThePlansIsRefused) {
  std::vector<Override> keys = planned({{"parallel.tensor", "2"}});
  keys.emplace_back("parallel.notes", notes_for(config("traced", keys), 2));
  keys.emplace_back("points.dropout", "0.5");
  const std::string refusal =
      harness::message_of<ConfigError>([&] { run(config("other", keys), 2); });
  EXPECT_THAT(refusal, AllOf(HasSubstr("plan again for this model"), HasSubstr("operator")));
  keys.emplace_back("points.chain", "true");
  keys.emplace_back("parallel.pipeline", "2");
  EXPECT_THAT(this->refusal(keys, 4), HasSubstr("parallel.pipeline is 2"));
  EXPECT_THAT(this->refusal({{"parallel.notes", "nothing"}}), HasSubstr("parallel.notes is"));
}

}  // namespace
}  // namespace trireme::train
