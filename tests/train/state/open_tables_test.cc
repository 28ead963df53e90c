#include "trireme/train/state/open_tables.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/embedding/jagged_ids.h"

namespace trireme::train::inline internal {
namespace {

std::vector<parallel::TableConfig> open_and_fixed(const mesh::Placement& placement) {
  parallel::TableConfig open{
      .name = "t", .rows = parallel::kOpenRows, .width = 3, .placement = placement};
  open.is_open = true;
  open.open_min_uses = 2;
  return {open, {.name = "fixed", .rows = 2, .width = 1}};
}

// Rank 0 uses the ids.
void use(parallel::EmbeddingTables& tables, comm::Communicator& world, std::vector<int64_t> ids) {
  if (world.rank() != 0) ids.clear();
  const at::Tensor lengths = at::tensor({std::ssize(ids), int64_t{0}}, at::kLong).view({2, 1});
  tables.look_up(parallel::jagged_ids(at::tensor(ids, at::kLong), lengths))
      .pooled_BW.sum()
      .backward();
}

class OpenTablesLoads : public ::testing::Test {
 protected:
  // Two ids have rows, one waits.
  void save() {
    const harness::OneThread one_thread;
    harness::run_ranks(3, [&](comm::Communicator& world) {
      parallel::EmbeddingTables tables(open_and_fixed(mesh::Placement::sharded(0)), &world);
      use(tables, world, {-7, 1, 1 << 20});
      use(tables, world, {1 << 20, -7});
      const std::vector<checkpoint::Entry> entries = open_table_entries(tables);
      checkpoint::save(folder_.path(), 2, entries, "{}", world, {.fsync = false});
    });
  }
  harness::TemporaryFolder folder_;
};

TEST_F(OpenTablesLoads, BringEachRankItsRows) {
  save();
  const auto saved = *checkpoint::latest(folder_.path());
  const auto all = checkpoint::load_global(saved);
  std::vector<std::string> names;
  for (const auto& [name, values] : all) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"optimizer.sum.t.weight", "optimizer.t.last_uses",
                                      "optimizer.t.waiting_ids", "optimizer.t.waiting_last_uses",
                                      "optimizer.t.waiting_uses", "t.ids", "t.weight"}));
  EXPECT_EQ(all.at("t.ids").numel(), 2);
  EXPECT_EQ(all.at("optimizer.t.waiting_ids").item<int64_t>(), 1);
  for (const int ranks : {1, 2, 4}) {
    for (const bool is_replicated : {false, true}) {
      const harness::TemporaryFolder again;
      const harness::OneThread one_thread;
      harness::run_ranks(ranks, [&](comm::Communicator& world) {
        parallel::EmbeddingTables tables(
            open_and_fixed(is_replicated ? mesh::Placement::replicated()
                                         : mesh::Placement::sharded(0)),
            &world);
        OpenTablesLoad load({&tables}, saved, checkpoint::inspect(saved), nullptr, world);
        std::vector<checkpoint::Entry> entries = load.entries();
        checkpoint::load(saved, entries, world);
        load.finish(world);
        tables.set_num_steps(2);
        checkpoint::save(again.path(), 2, open_table_entries(tables), "{}", world,
                         {.fsync = false});
      });
      const auto loaded = checkpoint::load_global(*checkpoint::latest(again.path()));
      EXPECT_EQ(loaded.size(), all.size());
      for (const auto& [name, values] : loaded) {
        harness::assert_same_bits(values, all.at(name), name);
      }
    }
  }
}

TEST_F(OpenTablesLoads, RefuseACheckpointWithoutIds) {
  save();
  const auto saved = *checkpoint::latest(folder_.path());
  harness::run_ranks(2, [&](comm::Communicator& world) {
    parallel::EmbeddingTables tables(open_and_fixed(mesh::Placement::sharded(0)), &world);
    const auto refusal = [&](const checkpoint::Summary& summary) {
      return harness::message_of<CheckpointError>(
          [&] { OpenTablesLoad({&tables}, saved, summary, nullptr, world); });
    };
    checkpoint::Summary summary = checkpoint::inspect(saved);
    const auto ids =
        std::ranges::find(summary.tensors, std::string("t.ids"), &checkpoint::TensorSummary::name);
    ids->shape = {int64_t{1} << 61};
    EXPECT_EQ(refusal(summary), saved.string() +
                                    ": \"t.ids\" has shape [2305843009213693952] and 16 bytes; "
                                    "expected a list of 64-bit ids");
    summary.tensors.erase(ids);
    EXPECT_EQ(refusal(summary), saved.string() +
                                    ": there is no tensor \"t.ids\", the ids of a table with an "
                                    "open vocabulary; use another checkpoint");
    EXPECT_EQ(OpenTablesLoad({}, saved, summary, nullptr, world).entries().size(), 0U);
  });
}

// What only one rank finds wrong is an error on each.
TEST_F(OpenTablesLoads, FailOnEveryRank) {
  save();
  const auto saved = *checkpoint::latest(folder_.path());
  harness::run_ranks(2, [&](comm::Communicator& world) {
    std::vector<parallel::TableConfig> configs = open_and_fixed(mesh::Placement::sharded(0));
    if (world.rank() == 1) {
      configs[0].open_when_full = parallel::FullTable::kRefuse;
      configs[0].open_max_rows = 1;
    }
    parallel::EmbeddingTables tables(configs, &world);
    EXPECT_NE(harness::message_of<ConfigError>([&] {
                OpenTablesLoad({&tables}, saved, checkpoint::inspect(saved), nullptr, world);
              }).find("the checkpoint has 2 rows"),
              std::string::npos);
    parallel::EmbeddingTables copies(open_and_fixed(mesh::Placement::replicated()), &world);
    OpenTablesLoad load({&copies}, saved, checkpoint::inspect(saved), nullptr, world);
    std::vector<checkpoint::Entry> entries = load.entries();
    checkpoint::load(saved, entries, world);
    const auto ids = std::ranges::find(entries, std::string("t.ids"), &checkpoint::Entry::name);
    if (world.rank() == 1) ids->local.copy_(ids->local.flip(0));
    EXPECT_NE(harness::message_of<CheckpointError>([&] { load.finish(world); }).find("in order"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace trireme::train::inline internal
