#include "trireme/tasks/recommend/tables/planned_tables.h"

#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/tasks/recommend/feature_folder.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/parallel/embedding/embedding_table.h"

namespace trireme::tasks {
namespace {

TEST(TableLoads, CountTheSubtreesOfEachRank) {
  EXPECT_EQ(step_shape(16, 2).subtrees, (std::vector<std::vector<int64_t>>{{0}, {0}}));
  EXPECT_EQ(step_shape(16, 2).samples_per_rank, 8);
  // Samples 0 to 5 are the subtrees 0-3 and 4-5, and 6 to 11 are 6-7 and 8-11.
  EXPECT_EQ(step_shape(12, 2).subtrees, (std::vector<std::vector<int64_t>>{{0, 4}, {0, 2}}));
  EXPECT_EQ(step_shape(1, 2).subtrees, (std::vector<std::vector<int64_t>>{{0}, {0}}));
  EXPECT_EQ(step_shape(7, 1).subtrees, (std::vector<std::vector<int64_t>>{{0}}));
}

TEST(TableLoads, MeasureTheColumnsOfTheData) {
  const harness::TemporaryFolder folder;
  harness::write_label_folder(folder.path(), 2);
  const dataset::FeatureData data = dataset::open_features(folder.path());
  const plan::StepShape shape = step_shape(96, 2);
  int64_t num_calls = 0;
  const auto found =
      measure_columns(*data.training, data.schema, 5, shape, [&](int64_t, int64_t total) {
        ++num_calls;
        EXPECT_EQ(total, 96);
      });
  EXPECT_EQ(num_calls, 1);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].ids_per_sample, 1);
  EXPECT_EQ(found[0].distinct, 11);
  EXPECT_EQ(found[0].use.all().updated, 11);
  EXPECT_EQ(found[2].use.all().distinct, 5);
  // The words of one rank's 48 samples in the order of training, counted by hand.
  const dataset::SampleOrder order(96, 5, /*shuffle=*/true);
  std::vector<int64_t> of_rank(2);
  int64_t num_ids = 0;
  for (int rank = 0; rank < 2; ++rank) {
    std::set<int64_t> words;
    for (int64_t n = 48 * rank; n < 48 * (rank + 1); ++n) {
      const auto sample = data.training->get(order.index(n));
      const at::Tensor ids = dataset::find_tensor(sample, "ids");
      const auto count = dataset::find_tensor(sample, "lengths")[1].item<int64_t>();
      for (int64_t i = 0; i < count; ++i) words.insert(ids[1 + i].item<int64_t>());
      num_ids += count;
    }
    of_rank[static_cast<size_t>(rank)] = std::ssize(words);
  }
  EXPECT_DOUBLE_EQ(found[1].ids_per_sample, static_cast<double>(num_ids) / 96);
  EXPECT_DOUBLE_EQ(found[1].use.all().distinct, static_cast<double>(of_rank[0] + of_rank[1]) / 2);
}

TEST(TableLoads, ReadNoMoreThanTheLimits) {
  const harness::TemporaryFolder folder;
  harness::write_label_folder(folder.path(), 2);
  const dataset::FeatureData data = dataset::open_features(folder.path());
  const auto few =
      measure_columns(*data.training, data.schema, 5, step_shape(96, 2), {}, {.max_samples = 3});
  EXPECT_LE(few[0].distinct, 3);
  // A sample has up to five ids.
  const auto fewer =
      measure_columns(*data.training, data.schema, 5, step_shape(96, 2), {}, {.max_ids = 9});
  EXPECT_EQ(fewer[0].distinct, 1);
}

TEST(TableLoads, OfOpenTablesCountTheIdsOfTheData) {
  const harness::TemporaryFolder folder;
  harness::write_label_folder(folder.path(), 2, /*user_rows=*/11, /*is_hashed=*/true);
  const dataset::FeatureData data = dataset::open_features(folder.path());
  const auto found = measure_columns(*data.training, data.schema, 5, step_shape(96, 2), {}, {},
                                     {true, true, true});
  EXPECT_EQ(found[0].rows_in_use, 11);
  EXPECT_EQ(found[0].use.rows(), parallel::kOpenRows);
  EXPECT_EQ(found[0].use.all().updated, 11);
  EXPECT_EQ(found[2].use.all().distinct, 5);
  parallel::TableConfig config{.name = "t", .rows = parallel::kOpenRows, .width = 6};
  config.is_open = true;
  const plan::TableLoad load = load_of(config, parallel::RowRule::kSgd, at::kFloat, found[0]);
  EXPECT_EQ(load.bytes(), 11 * 6 * 4);
  EXPECT_FALSE(load.may_split_columns);
}

TEST(TableLoads, TakeTheBytesOfTheTablesThemselves) {
  for (const auto& [name, rule] : parallel::kRowRules) {
    const parallel::TableConfig config{.name = "t", .rows = 10, .width = 6};
    const plan::TableStatistics statistics{.use = plan::RowUse::even(10, {})};
    parallel::EmbeddingTable table(config, {"data", 1}, 0, at::kDouble, 0, {.rule = rule});
    double bytes = 0;
    for (const parallel::TableTensor& tensor : table.state()) {
      bytes += static_cast<double>(tensor.local.nbytes());
    }
    if (rule == parallel::RowRule::kAdam) bytes += 10 * sizeof(int32_t);  // each row's last step
    const plan::TableLoad load = load_of(config, rule, at::kDouble, statistics);
    EXPECT_EQ(load.bytes(), bytes) << name;
    EXPECT_TRUE(load.may_split_columns);
    EXPECT_EQ(load.sums_squares, rule == parallel::RowRule::kRowWiseAdaGrad) << name;
  }
}

TEST(TableLoads, BecomePlacements) {
  using plan::TableSplit;
  EXPECT_EQ(to_placement({.split = TableSplit::kReplicated}, 5, 2), mesh::Placement::replicated());
  EXPECT_EQ(to_placement({.split = TableSplit::kWhole, .rank = 1}, 5, 2),
            mesh::Placement::sharded(0, {0, 0, 5}));
  EXPECT_EQ(to_placement({.split = TableSplit::kRows, .cuts = {0, 1, 5}}, 5, 2),
            mesh::Placement::sharded(0, {0, 1, 5}));
  EXPECT_EQ(to_placement({.split = TableSplit::kColumns}, 5, 2), mesh::Placement::sharded(1));
}

}  // namespace
}  // namespace trireme::tasks
