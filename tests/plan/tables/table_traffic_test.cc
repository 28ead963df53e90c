// The bytes that the cost model says, beside those that embedding tables send for the same ids.
#include <algorithm>
#include <mutex>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"
#include "trireme/plan/tables/table_search.h"
#include "trireme/plan/tables/table_statistics.h"

namespace trireme::plan {
namespace {

using harness::CountingCommunicator;
using harness::Draw;

struct Table {
  int64_t rows = 0, width = 0;
  int64_t ids = 1;  // a sample has 0 to this many
};

// What each rank's samples have, table after table.
struct Batch {
  std::vector<int64_t> num_samples;                        // [p]
  std::vector<std::vector<std::vector<int64_t>>> ids;      // [p][tables] of all samples
  std::vector<std::vector<std::vector<int64_t>>> lengths;  // [p][tables][samples]
};

Batch draw_batch(Draw& draw, const std::vector<Table>& tables,
                 const std::vector<int64_t>& num_samples) {
  Batch batch{num_samples, {}, {}};
  for (const int64_t count : num_samples) {
    batch.ids.emplace_back(tables.size());
    batch.lengths.emplace_back(tables.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      for (int64_t s = 0; s < count; ++s) {
        const int64_t length = draw.below(tables[t].ids + 1);
        batch.lengths.back()[t].push_back(length);
        for (int64_t i = 0; i < length; ++i) {  // low ids are hot
          const int64_t limit = 1 + draw.below(tables[t].rows);
          batch.ids.back()[t].push_back(draw.below(limit));
        }
      }
    }
  }
  return batch;
}

// With a bucket for each row, of the rank's true ids.
std::vector<TableLoad> loads_of(const std::vector<Table>& tables, const Batch& batch) {
  std::vector<TableLoad> loads;
  const size_t p = batch.num_samples.size();
  for (size_t t = 0; t < tables.size(); ++t) {
    TableLoad load{.name = std::to_string(t),
                   .rows = tables[t].rows,
                   .width = tables[t].width,
                   .number_bytes = 4,
                   .bytes_per_row = 4,
                   .sums_squares = true};
    std::vector<RankIds> of_ranks;
    for (size_t r = 0; r < p; ++r) of_ranks.push_back({batch.ids[r][t]});
    int64_t first = 0;
    for (size_t r = 0; r < p; ++r) {
      std::vector<RowCounts> buckets(static_cast<size_t>(tables[t].rows));
      const std::vector<int64_t> begins =
          parallel::subtrees_of(first, first + batch.num_samples[r]);
      std::vector<uint8_t> subtrees;
      for (size_t s = 0; s < batch.lengths[r][t].size(); ++s) {
        const auto tree =
            std::ranges::upper_bound(begins, first + static_cast<int64_t>(s)) - begins.begin() - 1;
        subtrees.insert(subtrees.end(), static_cast<size_t>(batch.lengths[r][t][s]),
                        static_cast<uint8_t>(tree));
      }
      count_ids({batch.ids[r][t], subtrees}, tables[t].rows, buckets);
      count_updates(of_ranks, tables[t].rows, buckets);
      load.use.emplace_back(tables[t].rows, buckets, std::ssize(begins));
      first += batch.num_samples[r];
    }
    loads.push_back(std::move(load));
  }
  return loads;
}

mesh::Placement placement_of(const TablePlace& place, int64_t rows, int num_ranks) {
  switch (place.split) {
    case TableSplit::kReplicated: return mesh::Placement::replicated();
    case TableSplit::kWhole: return parallel::whole_on(place.rank, rows, num_ranks);
    case TableSplit::kRows: return mesh::Placement::sharded(0, place.cuts);
    case TableSplit::kColumns: return mesh::Placement::sharded(1);
  }
  throw InternalError("a split without a name");
}

struct Counted {
  std::vector<int64_t> sent;                  // [p] by the communicator
  std::vector<parallel::TableCounts> counts;  // [p] by the tables
  std::vector<int64_t> memory_bytes;          // [p] of weights and states
};

Counted count_step(const std::vector<Table>& tables, const std::vector<TablePlace>& places,
                   const Batch& batch) {
  const auto p = static_cast<int>(batch.num_samples.size());
  Counted counted{std::vector<int64_t>(static_cast<size_t>(p)),
                  std::vector<parallel::TableCounts>(static_cast<size_t>(p)),
                  std::vector<int64_t>(static_cast<size_t>(p))};
  harness::run_ranks(p, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    std::vector<parallel::TableConfig> configs;
    std::vector<at::Tensor> values, lengths;
    const auto rank = static_cast<size_t>(group.rank());
    for (size_t t = 0; t < tables.size(); ++t) {
      configs.push_back({.name = std::to_string(t),
                         .rows = tables[t].rows,
                         .width = tables[t].width,
                         .placement = placement_of(places[t], tables[t].rows, p)});
      values.push_back(at::tensor(batch.ids[rank][t], at::kLong));
      lengths.push_back(at::tensor(batch.lengths[rank][t], at::kLong));
    }
    parallel::EmbeddingTables embedding(
        configs, &counting, {.optimizer = {.rule = parallel::RowRule::kRowWiseAdaGrad}});
    for (const parallel::TableTensor& tensor : embedding.state()) {
      counted.memory_bytes[rank] += static_cast<int64_t>(tensor.local.nbytes());
    }
    const parallel::Embeddings found =
        embedding.look_up(parallel::jagged_ids(at::cat(values), at::stack(lengths)));
    found.pooled_BW.sum().backward();
    counted.sent[rank] = counting.sent_by_all_to_all();
    counted.counts[rank] = embedding.counts();
  });
  return counted;
}

void expect_predicted(const std::vector<Table>& tables, const std::vector<TablePlace>& places,
                      const Batch& batch) {
  const auto p = static_cast<int>(batch.num_samples.size());
  const std::vector<TableLoad> loads = loads_of(tables, batch);
  const TableSearch search{.ranks = {.num_ranks = p, .ranks_per_node = p}, .memory_bytes = 1e12};
  const TablePlan plan = plan_of(loads, places, search);
  const Counted counted = count_step(tables, places, batch);
  for (size_t r = 0; r < plan.costs.size(); ++r) {
    const RankCost& cost = plan.costs[r];
    const parallel::TableCounts& counts = counted.counts[r];
    EXPECT_EQ(cost.sent(), static_cast<double>(counted.sent[r])) << "rank " << r;
    EXPECT_EQ(counts.sent_bytes, counted.sent[r]);
    EXPECT_EQ(cost.received(), static_cast<double>(counts.received_bytes));
    EXPECT_EQ(cost.rows_read, static_cast<double>(counts.rows_read));
    EXPECT_EQ(cost.gradients_added, static_cast<double>(counts.gradients_added));
    EXPECT_EQ(counts.num_steps, 1);
    EXPECT_EQ(plan.costs[r].memory_bytes, static_cast<double>(counted.memory_bytes[r]));
  }
}

const std::vector<Table> kTables{{300, 8, 3}, {7, 4, 1}, {64, 16, 10}, {1000, 8, 1}};

TEST(TableTraffic, OfThePlannedPlacementIsCountedToTheByte) {
  Draw draw(1);
  for (const int p : {1, 2, 3, 4}) {
    const Batch batch = draw_batch(draw, kTables, std::vector<int64_t>(static_cast<size_t>(p), 32));
    const std::vector<TableLoad> loads = loads_of(kTables, batch);
    TableSearch search{.ranks = {.num_ranks = p, .ranks_per_node = p},
                       .rates = {.near_bytes = 4e9, .far_bytes = 1e9, .memory_bytes = 6e9},
                       .memory_bytes = 40000.0};
    search.memory_bytes = p == 1 ? 1e6 : search.memory_bytes;
    expect_predicted(kTables, place_tables(loads, search).places, batch);
  }
}

TEST(TableTraffic, OfEverySplitAndUnevenRanksIsCountedToTheByte) {
  Draw draw(2);
  const std::vector<TablePlace> mixed{{.split = TableSplit::kRows, .cuts = {0, 10, 200, 300}},
                                      {.split = TableSplit::kReplicated},
                                      {.split = TableSplit::kWhole, .rank = 2},
                                      {.split = TableSplit::kRows}};
  std::vector<TablePlace> columns = mixed;
  columns[2] = columns[3] = {.split = TableSplit::kColumns};
  for (const std::vector<int64_t>& num_samples :
       {std::vector<int64_t>{8, 8, 8}, std::vector<int64_t>{5, 0, 22},
        std::vector<int64_t>{1, 31, 3}}) {
    const Batch batch = draw_batch(draw, kTables, num_samples);
    expect_predicted(kTables, mixed, batch);
    expect_predicted(kTables, columns, batch);
  }
}

// Two of the ranks have no columns.
TEST(TableTraffic, OfATableWithFewerColumnsThanRanksIsCountedToTheByte) {
  Draw draw(3);
  const std::vector<Table> narrow{{40, 2, 3}, {30, 7, 2}};
  const std::vector<TablePlace> columns(2, {.split = TableSplit::kColumns});
  expect_predicted(narrow, columns, draw_batch(draw, narrow, {8, 5, 0, 9}));
}

}  // namespace
}  // namespace trireme::plan
