// The promise of embedding_tables.h: the same bits for every placement, number of ranks and number
// of threads.
#include <filesystem>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// One rank's part of a run, the next batch's ids being sent before this batch's gradients.
void check_rank(const OneRun& run, const std::vector<TableConfig>& tables,
                const EmbeddingOptions& options, const std::vector<int64_t>& cuts,
                comm::Communicator& group) {
  const auto T = std::ssize(tables);
  const auto rank = static_cast<size_t>(group.rank());
  const int64_t begin = cuts[rank], end = cuts[rank + 1];
  EmbeddingTables many(tables, &group, options);
  StartedLookUp started = many.start(samples_of(run.batches[0], T, begin, end));
  for (size_t step = 0; step < run.batches.size(); ++step) {
    const Embeddings outputs = many.finish(started);
    const JaggedIds& ids = run.batches[step];
    expect_same_bits(outputs, samples_of(run.outputs[step], ids, tables, begin, end));
    if (step + 1 < run.batches.size()) {
      started = many.start(samples_of(run.batches[step + 1], T, begin, end));
    }
    run_backward(outputs, samples_of(run.gradients[step], ids, tables, begin, end));
  }
  expect_state(many, run.state);
  EXPECT_EQ(many.num_steps(), std::ssize(run.batches));
}

void check_ranks(const OneRun& run, const std::vector<TableConfig>& tables,
                 const EmbeddingOptions& options, const std::vector<int64_t>& cuts) {
  const OneThread one_thread;
  run_ranks(static_cast<int>(std::ssize(cuts)) - 1,
            [&](comm::Communicator& group) { check_rank(run, tables, options, cuts, group); });
}

TEST(EmbeddingBits, AreThoseOfOneRankOnProcessesToo) {
  for (const int world : {2, 3}) {
    Draw draw(static_cast<uint64_t>(world));
    const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = RowRule::kAdam}};
    const OneRun run = run_on_one(draw, make_tables(), options, 13, 4);
    const std::vector<TableConfig> tables = place(draw, make_tables(), world, true);
    const std::vector<int64_t> cuts = draw_cuts(draw, 13, world);
    const auto status = fork_ranks(
        world, [&](comm::Communicator& group) { check_rank(run, tables, options, cuts, group); });
    EXPECT_EQ(status, std::vector<ExitStatus>(static_cast<size_t>(world), 0));
  }
}

class EmbeddingRules : public testing::TestWithParam<RowRule> {};

TEST_P(EmbeddingRules, OnOneRankAreThoseOfThePlainOptimizers) {
  Draw draw(1);
  for (int round = 0; round < 10; ++round) {
    const std::vector<TableConfig> tables = make_tables();
    const EmbeddingOptions options{
        .dtype = at::kDouble,
        .seed = 7,
        .optimizer = {.rule = GetParam(), .learning_rate = 0.1, .initial_accumulator = 0.1}};
    const OneRun run = run_on_one(draw, tables, options, draw.below<int64_t>(9), 4);
    EmbeddingOracle oracle(tables, options);
    for (size_t step = 0; step < run.batches.size(); ++step) {
      const Embeddings expected = oracle.look_up(run.batches[step]);
      expect_close(run.outputs[step], expected);
      run_backward(expected, run.gradients[step]);
      oracle.step(run.batches[step]);
    }
    for (const auto& [name, expected] : oracle.state())
      expect_close(run.state.at(name), expected, name);
  }
}

TEST_P(EmbeddingRules, HaveTheSameBitsForEveryPlacementAndNumberOfRanks) {
  Draw draw(2);
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    for (int round = 0; round < (world < 5 ? 10 : 3); ++round) {
      const EmbeddingOptions options{.dtype = round % 2 == 0 ? at::kFloat : at::kDouble,
                                     .seed = 7,
                                     .optimizer = {.rule = GetParam(), .learning_rate = 0.1},
                                     .symmetric = round % 3 != 0};
      const int64_t num_samples = round % 4 == 0 ? 4 * world : draw.below<int64_t>(30);
      const OneRun run = run_on_one(draw, make_tables(), options, num_samples, 4);
      check_ranks(run, place(draw, make_tables(), world, true), options,
                  draw_cuts(draw, num_samples, world));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachRule, EmbeddingRules, testing::ValuesIn(kEachRule), rule_name);

TEST(EmbeddingBits, HaveTheSameBitsForEveryNumberOfThreads) {
  const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = RowRule::kAdam}};
  const std::vector<TableConfig> tables{
      {.name = "many", .rows = 900, .width = 5},
      {.name = "apart", .rows = 700, .width = 3, .pooling = Pooling::kNone}};
  const int threads = at::get_num_threads();
  std::vector<OneRun> runs;
  for (const int num_threads : {1, 3}) {
    Draw draw(8);
    at::set_num_threads(num_threads);
    runs.push_back(run_on_one(draw, tables, options, 1100, 3));
  }
  at::set_num_threads(threads);
  for (size_t step = 0; step < 3; ++step) {
    expect_same_bits(runs[1].outputs[step], runs[0].outputs[step]);
  }
  assert_same_bits(runs[1].state, runs[0].state);
}

std::vector<checkpoint::Entry> entries_of(EmbeddingTables& tables) {
  std::vector<checkpoint::Entry> entries;
  for (const TableTensor& tensor : tables.state()) {
    entries.push_back({tensor.name, tensor.local, tensor.layout, tensor.rank});
  }
  return entries;
}

// The steps [first, end) of a run at one placement, from a checkpoint of step `first` to one of
// step `end`, or to the end of the run.
void run_steps(const OneRun& all, const EmbeddingOptions& options,
               const std::filesystem::path& root, const std::vector<TableConfig>& placed, int world,
               size_t first, size_t end) {
  const OneThread one_thread;
  run_ranks(world, [&](comm::Communicator& group) {
    EmbeddingTables tables(placed, &group, options);
    if (first > 0) {
      std::vector<checkpoint::Entry> entries = entries_of(tables);
      checkpoint::load(*checkpoint::latest(root), entries, group);
      tables.set_num_steps(static_cast<int64_t>(first));
    }
    const mesh::Range own = mesh::split_range(13, group.size(), group.rank());
    const int64_t last = own.offset + own.size;
    for (size_t step = first; step < end; ++step) {
      const JaggedIds& ids = all.batches[step];
      const Embeddings outputs =
          tables.look_up(samples_of(ids, std::ssize(placed), own.offset, last));
      run_backward(outputs, samples_of(all.gradients[step], ids, placed, own.offset, last));
    }
    if (end == all.batches.size()) return expect_state(tables, all.state);
    checkpoint::save(root, static_cast<int64_t>(end), entries_of(tables), "{}", group,
                     {.fsync = false});
  });
}

// Saved at one placement and number of ranks, loaded at another.
TEST(EmbeddingBits, GoOnFromACheckpointAtAnotherPlacement) {
  Draw draw(6);
  for (const auto& [rule, from, to] : {std::tuple{RowRule::kAdaGrad, 3, 2},
                                       {RowRule::kRowWiseAdaGrad, 2, 4},
                                       {RowRule::kLazyAdam, 4, 3},
                                       {RowRule::kAdam, 3, 2},
                                       {RowRule::kAdam, 1, 3}}) {
    const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = rule, .learning_rate = 0.1}};
    const OneRun all = run_on_one(draw, make_tables(), options, 13, 8);
    const TemporaryFolder folder;
    run_steps(all, options, folder.path(), place(draw, make_tables(), from, true), from, 0, 3);
    run_steps(all, options, folder.path(), place(draw, make_tables(), to, true), to, 3, 8);
  }
}

// Each rank with columns has the numbers of all rows, and a checkpoint has them once.
TEST(EmbeddingBits, RowWiseAdaGradGoesOnByColumnsByRowsAndWhole) {
  Draw draw(7);
  const EmbeddingOptions options{.seed = 3, .optimizer = {.learning_rate = 0.1}};
  for (int round = 0; round < 5; ++round) {
    const OneRun all = run_on_one(draw, make_tables(), options, 13, 8);
    const TemporaryFolder folder;
    std::vector<TableConfig> by_columns[] = {make_tables(), make_tables()};
    std::vector<TableConfig> by_rows = make_tables(), whole = make_tables();
    for (size_t t = 0; t < whole.size(); ++t) {
      const int64_t rows = whole[t].rows, width = whole[t].width;
      by_columns[0][t].placement = mesh::Placement::sharded(1, draw_cuts(draw, width, 3));
      by_rows[t].placement = mesh::Placement::sharded(0, draw_cuts(draw, rows, 2));
      by_columns[1][t].placement = mesh::Placement::sharded(1, draw_cuts(draw, width, 4));
      whole[t].placement = whole_on(draw.below(3), rows, 3);
    }
    run_steps(all, options, folder.path(), by_columns[0], 3, 0, 2);
    run_steps(all, options, folder.path(), by_rows, 2, 2, 4);
    run_steps(all, options, folder.path(), by_columns[1], 4, 4, 6);
    run_steps(all, options, folder.path(), whole, 3, 6, 8);
  }
}

// One placement for all tables, so that each is there in every world.
TEST(EmbeddingBits, EveryPlacementAloneHasTheBitsOfOneRank) {
  for (const int world : {2, 3, 4}) {
    for (int kind = 0; kind < 10; ++kind) {
      const RowRule rule = kind < 5 ? RowRule::kAdaGrad : RowRule::kRowWiseAdaGrad;
      const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = rule}};
      Draw draw(static_cast<uint64_t>(10 * world + kind));
      const OneRun run = run_on_one(draw, make_tables(), options, 13, 3);
      std::vector<TableConfig> tables = make_tables();
      for (TableConfig& table : tables) {
        table.placement =
            std::array{mesh::Placement::replicated(), whole_on(world - 1, table.rows, world),
                       mesh::Placement::sharded(0), mesh::Placement::sharded(1),
                       rows_on(1, world - 1, table.rows, world)}[kind % 5];
      }
      check_ranks(run, tables, options, draw_cuts(draw, 13, world));
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
