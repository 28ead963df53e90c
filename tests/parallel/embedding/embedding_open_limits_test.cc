// Tables with open vocabularies and too many rows: which are evicted, and what is refused.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/base/error.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel {
namespace {

using namespace harness;

TableConfig open_table() {
  TableConfig table{.name = "user", .rows = kOpenRows, .width = 5};
  table.is_open = true;
  return table;
}

// The message on each of two ranks after steps with some ids.
void expect_refusal(const TableConfig& table, const std::vector<std::vector<int64_t>>& steps,
                    const std::string& message) {
  const OneThread one_thread;
  run_ranks(2, [&](comm::Communicator& group) {
    TableConfig placed = table;
    placed.placement = mesh::Placement::sharded(0);
    EmbeddingTables tables({placed}, &group, {.optimizer = {.rule = RowRule::kSgd}});
    EXPECT_EQ(message_of<ConfigError>([&] {
                for (const std::vector<int64_t>& ids : steps) {
                  tables.look_up(one_sample(ids)).pooled_BW.sum().backward();
                }
              }),
              message);
  });
}

TEST(EmbeddingOpenLimits, TooManyRowsAreAnErrorOnEveryRankIfTheyMayNotBeEvicted) {
  TableConfig table = open_table();
  table.open_max_rows = 2;
  table.open_when_full = FullTable::kRefuse;
  expect_refusal(table, {{1, 2}, {2}}, "");
  const std::string message =
      "embedding table \"user\" has 3 rows; expected at most 2 (open_max_rows); allow more, evict "
      "old ones, drop rows after fewer steps or require more uses of an id";
  expect_refusal(table, {{1, 2}, {2}, {3}}, message);
  table.open_expire_steps = 1;
  expect_refusal(table, {{1, 2}, {2}, {3}}, "");
  expect_refusal(table, {{1, 2, 3}}, message);
}

// Two steps in three use 1 and 2, the others new ids, of which those of the last step are newest.
TEST(EmbeddingOpenLimits, RowsThatAreUsedOftenStayAmongNewOnesUntilTheirUsesAreHalved) {
  TableConfig table = open_table();
  table.open_max_rows = 3;
  const auto rows_after = [&](FullTable when_full, int64_t halve_steps, int64_t num_steps) {
    table.open_when_full = when_full;
    table.open_halve_steps = when_full == FullTable::kEvictRarest ? halve_steps : kOpenHalveSteps;
    EmbeddingTables tables({table}, nullptr, {.optimizer = {.rule = RowRule::kSgd}});
    for (int64_t step = 1; step <= num_steps; ++step) {
      const bool is_old = step <= 9 && step % 3 != 0;
      const std::vector<int64_t> ids =
          is_old ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{10 * step, 10 * step + 1};
      tables.look_up(one_sample(ids)).pooled_BW.sum().backward();
    }
    std::vector<int64_t> ids = numbers(tables.open_state()[0].local);
    std::ranges::sort(ids);
    return ids;
  };
  EXPECT_THAT(rows_after(FullTable::kEvict, 0, 10), testing::IsSupersetOf({100, 101}));
  EXPECT_THAT(rows_after(FullTable::kEvictRarest, 0, 10), testing::IsSupersetOf({1, 2}));
  EXPECT_THAT(rows_after(FullTable::kEvictRarest, 0, 99), testing::IsSupersetOf({1, 2}));
  EXPECT_THAT(rows_after(FullTable::kEvictRarest, 5, 12), testing::IsSupersetOf({1, 2}));
  // Their six uses were halved three times: 6 / 8 < 1.
  EXPECT_THAT(rows_after(FullTable::kEvictRarest, 5, 20), testing::IsSupersetOf({200, 201}));
}

// A checkpoint of a run that evicted the oldest rows has no uses.
TEST(EmbeddingOpenLimits, RowsWithoutSavedUsesWereUsedOnce) {
  TableConfig table = open_table();
  table.open_max_rows = 3;
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kSgd}};
  EmbeddingTables before({table}, nullptr, options);
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{7, 8}, {7}, {7, 9}, {8}}) {
    before.look_up(one_sample(ids)).pooled_BW.sum().backward();
  }
  std::vector<TableTensor> saved = before.open_state();
  EXPECT_EQ(saved.size(), 6U);
  table.open_when_full = FullTable::kEvictRarest;
  EmbeddingTables after({table}, nullptr, options);
  EXPECT_THROW(after.load_open_state(saved), CheckpointError);
  saved.push_back({.name = "user.uses", .local = {}, .layout = saved[0].layout});
  after.load_open_state(saved);
  after.set_num_steps(4);
  after.look_up(one_sample({5})).pooled_BW.sum().backward();
  std::vector<int64_t> left = numbers(after.open_state()[0].local);
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<int64_t>{5, 8, open_key(7) < open_key(9) ? 9 : 7}));
  for (const float bad : {0.F, -1.F, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    saved.back().local = at::tensor({1.F, 2.F, bad});
    EXPECT_THAT(message_of<CheckpointError>([&] { after.load_open_state(saved); }),
                testing::AllOf(testing::HasSubstr("\"user\": a saved row has "),
                               testing::HasSubstr(" uses; expected 1 to 1")));
  }
}

TEST(EmbeddingOpenLimits, ACheckpointWithMoreRowsThanMayBeIsRefusedOrEvicted) {
  TableConfig table = open_table();
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kSgd}};
  EmbeddingTables before({table}, nullptr, options);
  for (const int64_t id : {7, 8, 9}) {
    before.look_up(one_sample({id})).pooled_BW.sum().backward();
  }
  const std::vector<TableTensor> saved = before.open_state();
  const auto read = [&](const std::string& name) {
    return std::ranges::find(saved, name, &TableTensor::name)->local;
  };
  table.open_max_rows = 2;
  EmbeddingTables evicts({table}, nullptr, options);
  evicts.open_state_to_load(read);
  evicts.load_open_state(saved);
  evicts.set_num_steps(3);
  evicts.look_up(one_sample({7})).pooled_BW.sum().backward();
  std::vector<int64_t> left = numbers(evicts.open_state()[0].local);
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<int64_t>{7, 9})) << "8 is the oldest now";
  EXPECT_EQ(evicts.open_counts().evicted, 1);
  table.open_when_full = FullTable::kRefuse;
  EmbeddingTables refuses({table}, nullptr, options);
  EXPECT_EQ(message_of<ConfigError>([&] { refuses.open_state_to_load(read); }),
            "embedding table \"user\": the checkpoint has 3 rows; expected at most 2 "
            "(open_max_rows); allow more or evict old ones");
}

}  // namespace
}  // namespace trireme::parallel
