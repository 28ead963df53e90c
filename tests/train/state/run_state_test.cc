#include "trireme/train/state/run_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/write/saver.h"
#include "trireme/parallel/embedding/jagged_ids.h"

namespace trireme::train {
namespace {

TEST(RunState, SurvivesItsText) {
  const RunState state{.step = 7,
                       .next_sample = 56,
                       .optimizer_steps = 6,
                       .config = "[train]\nsteps = 7\n",
                       .loss_scale = 1024,
                       .loss_scale_steps = 3,
                       .bad_steps = {.mean_norm = 0.5, .num_good = 12, .num_skipped = 2},
                       .bad_samples = 7,
                       .noise = {.squared_gradient = 0.25, .trace = 3, .weight = 0.5},
                       .data = {.checksums = {{"index", "0123456789abcdef"},
                                              {"tokens", "fedcba9876543210"},
                                              {"tokenizer", "00112233445566ff"}},
                                .counts = {{"num_documents", 5}, {"num_tokens", 1 << 20}}},
                       .validation = {.checksums = {{"samples", "8899aabbccddeeff"}},
                                      .counts = {{"num_samples", 1 << 10}}}};
  const RunState again = parse_state(to_json(state), "here");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.next_sample, 56);
  EXPECT_EQ(again.optimizer_steps, 6);
  EXPECT_EQ(again.config, state.config);
  EXPECT_EQ(again.loss_scale, 1024);
  EXPECT_EQ(again.loss_scale_steps, 3);
  EXPECT_EQ(again.bad_steps.mean_norm, 0.5);
  EXPECT_EQ(again.bad_steps.num_good, 12);
  EXPECT_EQ(again.bad_steps.num_skipped, 2);
  EXPECT_EQ(again.bad_samples, 7);
  EXPECT_EQ(again.noise.squared_gradient, 0.25);
  EXPECT_EQ(again.noise.trace, 3);
  EXPECT_EQ(again.noise.weight, 0.5);
  EXPECT_EQ(again.data, state.data);
  EXPECT_EQ(again.validation, state.validation);
}

TEST(RunState, UnknownDataOfEarlierVersionsIsUnknown) {
  const RunState state = parse_state(
      R"({"step": 7, "next_sample": 56, "optimizer_steps": 6, "config": "", "data": {"index": "",
          "tokens": "", "tokenizer": "", "num_documents": 0, "num_tokens": 0}})",
      "here");
  EXPECT_FALSE(state.data.is_known());
}

TEST(RunState, OfEarlierVersionsIsReadable) {
  const RunState state =
      parse_state(R"({"step": 7, "next_sample": 56, "optimizer_steps": 6, "config": ""})", "here");
  EXPECT_EQ(state.step, 7);
  EXPECT_FALSE(state.data.is_known());
  EXPECT_FALSE(state.validation.is_known());
}

TEST(RunState, WhatIsNotARunsStateIsRefusedWithThePath) {
  for (const char* text : {"{}", "nonsense", R"({"step": "one"})", R"({"step": 1, "data": 3})"}) {
    try {
      parse_state(text, "some/step-000010");
      FAIL() << text;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("some/step-000010"), std::string::npos)
          << error.what();
    }
  }
}

TEST(RunState, EntriesHoldEveryParameterAndItsOptimizerStateWithLayouts) {
  const std::vector<parallel::Shard> shards = {
      {.name = "a.weight", .weights = at::zeros({3, 2}), .layout = {{3, 2}, {{"shard", 1}}}},
      {.name = "b.weight",
       .weights = at::zeros({2}),
       .layout = {{5}, {{"shard", 2}}, {mesh::Placement::sharded(0, {0, 2, 5})}}},
      {.name = "c.frozen",
       .weights = at::zeros({4}),
       .layout = {{4}, {{"shard", 1}}},
       .is_trained = false}};
  const Optimizer optimizer(shards, {});
  const auto entries = checkpoint_entries(shards, optimizer.state());
  ASSERT_EQ(entries.size(), 7u);
  EXPECT_EQ(entries[0].name, "a.weight");
  EXPECT_TRUE(entries[0].local.is_alias_of(shards[0].weights));
  EXPECT_EQ(entries[3].name, "optimizer.exp_avg.a.weight");
  EXPECT_EQ(entries[6].name, "optimizer.exp_avg_sq.b.weight");
  for (const auto& entry : entries) {
    EXPECT_EQ(entry.layout.local_box(0).size, entry.local.sizes().vec());
  }
}

// Steps of one table, each with a save of the rows that it has changed and one of all.
class TableSteps {
 public:
  // memory_bytes: 0: all rows are in memory
  TableSteps(comm::Communicator& world, const mesh::Placement& placement, parallel::RowRule rule,
             const std::filesystem::path& root, int64_t memory_bytes = 0)
      : world_(world),
        root_(root),
        tables_({{.name = "t",
                  .rows = kRows,
                  .width = 32,
                  .placement = placement,
                  .memory_bytes = memory_bytes,
                  .folder = root.string()}},
                &world, {.optimizer = {.rule = rule}}),
        saver_(world) {}

  void run(int64_t step) {
    harness::Draw draw(static_cast<uint64_t>(100 * step + world_.rank()));
    at::Tensor ids = at::empty({90}, at::kLong);
    for (int64_t i = 0; i < 90; ++i) ids[i] = draw.below(i % 2 == 0 ? kRows : kRows / 100);
    tables_.look_up(parallel::jagged_ids(ids, at::full({1, 30}, 3, at::kLong)))
        .pooled_BW.sum()
        .backward();
    const checkpoint::SaveOptions options{.keep = 2, .fsync = false};
    saver_.start(root_ / "rows", step, table_entries(tables_), "{}", options);
    saver_.finish(/*waits=*/true);
    checkpoint::save(root_ / "all", step, table_entries(tables_), "{}", world_, options);
  }
  void load(int64_t step) {
    auto entries = table_entries(tables_);
    checkpoint::load(folder("rows", step), entries, world_);
    tables_.set_num_steps(step);
  }
  std::filesystem::path folder(const char* place, int64_t step) const {
    return root_ / place / concat("step-00000", step);
  }
  // By how many patches the rows of the weights were saved.
  int64_t num_patches(int64_t step) const {
    for (const auto& tensor : checkpoint::inspect(folder("rows", step)).tensors)
      if (tensor.name == "t.weight") return tensor.num_patches;
    return -1;
  }
  void expect_same(int64_t step) const {
    const auto all = checkpoint::load_global(folder("all", step));
    for (const auto& [name, values] : checkpoint::load_global(folder("rows", step)))
      harness::assert_same_bits(values, all.at(name), name);
  }

 private:
  static constexpr int64_t kRows = 26'000;  // 3.3 MB
  comm::Communicator& world_;
  std::filesystem::path root_;
  parallel::EmbeddingTables tables_;
  checkpoint::Saver saver_;
};

TEST(TableEntries, TellWhichRowsStepsHaveChanged) {
  using parallel::RowRule;
  for (const int ranks : {1, 3}) {
    for (const auto& [name, rule] : parallel::kRowRules) {
      for (const int dim : {0, 1}) {
        const harness::TemporaryFolder root;
        harness::run_ranks(ranks, [&](comm::Communicator& world) {
          TableSteps steps(world, mesh::Placement::sharded(dim), rule, root.path());
          // Exact Adam changes every row that was ever used at each save.
          const bool tells = rule != RowRule::kAdam;
          for (int64_t step = 1; step <= 4; ++step) {
            steps.run(step);
            if (world.rank() != 0) continue;
            steps.expect_same(step);
            EXPECT_EQ(steps.num_patches(step), tells ? step - 1 : 0) << name;
          }
          steps.load(3);
          steps.run(5);
          if (world.rank() != 0) return;
          EXPECT_EQ(steps.num_patches(5), 0) << "after a load nothing is known";
          steps.expect_same(5);
        });
      }
    }
  }
}

// Slots in memory are not the rows' numbers, and a save reads only the changed rows from the disk.
TEST(TableEntries, TellWhichRowsOnADiskHaveChanged) {
  const harness::TemporaryFolder root;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    TableSteps steps(world, mesh::Placement::sharded(0), parallel::RowRule::kRowWiseAdaGrad,
                     root.path(), /*memory_bytes=*/100'000);
    for (int64_t step = 1; step <= 4; ++step) {
      steps.run(step);
      if (world.rank() != 0) continue;
      steps.expect_same(step);
      EXPECT_EQ(steps.num_patches(step), step - 1);
    }
  });
}

}  // namespace
}  // namespace trireme::train
