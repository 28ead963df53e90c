#include "trireme/cli/plan/layout_search.h"

#include <gmock/gmock.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/cli/plan/cluster_file.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

train::RunConfig small_run() {
  return train::parse_config(
      "[model]\nlayers = 4\nwidth = 32\nheads = 4\nkv_heads = 4\n"
      "ffn_width = 64\nvocab_size = 64\nsequence_length = 16\n"
      "[train]\nglobal_batch = 8\n",
      "run.toml");
}

TEST(LayoutSearch, EveryLayoutThatItFindsIsLegal) {
  const train::RunConfig run = small_run();
  for (const int num_ranks : {1, 2, 3, 4, 8}) {
    const plan::SearchResult found =
        search_layouts(run, assumed_cluster(run, num_ranks), {.num_best = 100});
    EXPECT_FALSE(found.best.empty());
    for (const plan::Plan& plan : found.best) {
      train::RunConfig config = with_layout(run, plan.work);
      EXPECT_NO_THROW(resolve_on(config, plan.work.axes.num_ranks())) << describe(plan.work);
      EXPECT_EQ(config.train.micro_batch, plan.work.micro_batch);
      EXPECT_EQ(config.parallel.zero, plan.work.zero);
    }
  }
}

TEST(LayoutSearch, RecomputesTheModulesOfTheRun) {
  train::RunConfig run = small_run();
  run.train.recompute_modules = "feed_forward";
  const plan::SearchResult found = search_layouts(
      run, assumed_cluster(run, 1), {.fixed = {{"recompute", "selective"}}, .num_best = 1});
  ASSERT_EQ(found.best.size(), 1u);
  train::RunConfig config = with_layout(run, found.best.front().work);
  const plan::Workload again = resolve_on(config, 1);
  EXPECT_DOUBLE_EQ(
      predict_step(again, assumed_cluster(run, 1), runtime_stages(config)).step_seconds(),
      found.best.front().step.step_seconds());
}

TEST(LayoutSearch, OtherTasksAreRefused) {
  train::RunConfig vision = train::parse_config("[task]\nname = \"vision\"\n", "run.toml");
  EXPECT_FALSE(vision.task->model().workload(vision).has_value());
}

TEST(LayoutSearch, AFailureSaysWhatToDo) {
  plan::SearchResult found;
  EXPECT_THAT(describe_failure(found, {}), HasSubstr("change train.global_batch"));
  found.too_large.resize(1);
  found.too_large.front().step.memory.states = 1 << 30;
  EXPECT_THAT(describe_failure(found, {}), HasSubstr("the smallest needs 1.0 GiB"));
}

}  // namespace
}  // namespace trireme::cli
