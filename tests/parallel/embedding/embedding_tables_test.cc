#include "trireme/parallel/embedding/embedding_tables.h"

#include <algorithm>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_oracle.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// [0, length) cut at random, some parts empty.
std::vector<int64_t> draw_cuts(Draw& draw, int64_t length, int parts) {
  std::vector<int64_t> cuts{0, length};
  for (int i = 1; i < parts; ++i) cuts.push_back(draw.below(length + 1));
  std::ranges::sort(cuts);
  return cuts;
}

mesh::Placement draw_placement(Draw& draw, const TableConfig& table, int world, bool may_columns) {
  switch (draw.below(may_columns ? 7 : 5)) {
    case 0: return mesh::Placement::replicated();
    case 1: return whole_on(draw.below(world), table.rows, world);
    case 2: return mesh::Placement::sharded(0, draw_cuts(draw, table.rows, world));
    case 3: {
      const int first = draw.below(world);
      return rows_on(first, 1 + draw.below(world - first), table.rows, world);
    }
    case 4: return mesh::Placement::sharded(0);
    case 5: return mesh::Placement::sharded(1, draw_cuts(draw, table.width, world));
    default: return mesh::Placement::sharded(1);
  }
}

std::vector<TableConfig> make_tables() {
  return {{.name = "user", .rows = 11, .width = 5},
          {.name = "item", .rows = 3, .width = 4, .pooling = Pooling::kMean},
          {.name = "word", .rows = 7, .width = 3, .pooling = Pooling::kNone},
          {.name = "one", .rows = 1, .width = 1},
          {.name = "tag", .rows = 6, .width = 8, .is_weighted = true}};
}

std::vector<TableConfig> place(Draw& draw, std::vector<TableConfig> tables, int world,
                               bool may_columns) {
  for (TableConfig& table : tables) {
    table.placement = draw_placement(draw, table, world, may_columns);
  }
  return tables;
}

// The same for each sample in whatever rank it is.
at::Tensor gradient_of(const at::Tensor& whole, int64_t seed) {
  return at::arange(whole.numel(), at::kDouble)
      .add_(static_cast<double>(seed))
      .mul_(0.7)
      .sin_()
      .to(whole.scalar_type())
      .view(whole.sizes());
}

Embeddings gradients_of(const Embeddings& whole, int64_t seed) {
  Embeddings result{gradient_of(whole.pooled_BW.detach(), seed), {}};
  for (const at::Tensor& apart : whole.apart) {
    result.apart.push_back(gradient_of(apart.detach(), ++seed));
  }
  return result;
}

void run_backward(const Embeddings& outputs, const Embeddings& gradients) {
  std::vector<at::Tensor> roots{outputs.pooled_BW}, seeds{gradients.pooled_BW};
  roots.insert(roots.end(), outputs.apart.begin(), outputs.apart.end());
  seeds.insert(seeds.end(), gradients.apart.begin(), gradients.apart.end());
  torch::autograd::backward(roots, seeds);
}

template <typename Compare>
void compare(const Embeddings& actual, const Embeddings& expected, const Compare& compare_tensors) {
  compare_tensors(actual.pooled_BW.detach(), expected.pooled_BW.detach(), "pooled");
  ASSERT_EQ(actual.apart.size(), expected.apart.size());
  for (size_t i = 0; i < actual.apart.size(); ++i) {
    compare_tensors(actual.apart[i].detach(), expected.apart[i].detach(), "apart");
  }
}

const auto same_bits = [](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  assert_same_bits(a, b, what);
};
const auto close = [](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  assert_close(a, b, 1e-12, 1e-12, what);
};

at::Tensor box_of(const at::Tensor& whole, const mesh::Layout& layout, int rank) {
  const mesh::Box box = layout.local_box(rank);
  at::Tensor part = whole;
  for (int64_t d = 0; d < part.dim(); ++d) {
    const auto at = static_cast<size_t>(d);
    part = part.narrow(d, box.offset[at], box.size[at]);
  }
  return part.contiguous();
}

// What one rank without a group has after each of some steps.
struct OneRun {
  std::vector<JaggedIds> batches;
  std::vector<Embeddings> outputs;
  std::vector<Embeddings> gradients;
  std::map<std::string, at::Tensor> state;
};

OneRun run_on_one(Draw& draw, const std::vector<TableConfig>& tables,
                  const EmbeddingOptions& options, int64_t num_samples, int num_steps) {
  OneRun run;
  EmbeddingTables one(tables, nullptr, options);
  for (int step = 0; step < num_steps; ++step) {
    run.batches.push_back(draw_ids(draw, tables, num_samples, options.dtype));
    run.outputs.push_back(one.look_up(run.batches.back()));
    run.gradients.push_back(gradients_of(run.outputs.back(), step));
    run_backward(run.outputs.back(), run.gradients.back());
  }
  for (const TableTensor& tensor : one.state()) run.state[tensor.name] = tensor.local.clone();
  return run;
}

void expect_state(EmbeddingTables& tables, const std::map<std::string, at::Tensor>& expected) {
  const std::vector<TableTensor> state = tables.state();
  EXPECT_EQ(state.size(), expected.size());
  for (const TableTensor& tensor : state) {
    assert_same_bits(tensor.local, box_of(expected.at(tensor.name), tensor.layout, tensor.rank),
                     tensor.name);
  }
}

// On some ranks, the next batch's ids being sent before this batch's gradients.
void check_ranks(const OneRun& run, const std::vector<TableConfig>& tables,
                 const EmbeddingOptions& options, const std::vector<int64_t>& cuts) {
  const int world = static_cast<int>(std::ssize(cuts)) - 1;
  const auto T = std::ssize(tables);
  const OneThread one_thread;
  run_ranks(world, [&](comm::Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const int64_t begin = cuts[rank], end = cuts[rank + 1];
    EmbeddingTables many(tables, &group, options);
    StartedLookUp started = many.start(samples_of(run.batches[0], T, begin, end));
    for (size_t step = 0; step < run.batches.size(); ++step) {
      const Embeddings outputs = many.finish(started);
      const JaggedIds& ids = run.batches[step];
      compare(outputs, samples_of(run.outputs[step], ids, tables, begin, end), same_bits);
      if (step + 1 < run.batches.size()) {
        started = many.start(samples_of(run.batches[step + 1], T, begin, end));
      }
      run_backward(outputs, samples_of(run.gradients[step], ids, tables, begin, end));
    }
    expect_state(many, run.state);
    EXPECT_EQ(many.num_steps(), std::ssize(run.batches));
  });
}

class Rules : public testing::TestWithParam<RowRule> {};

TEST_P(Rules, OnOneRankAreThoseOfThePlainOptimizers) {
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
      compare(run.outputs[step], expected, close);
      run_backward(expected, run.gradients[step]);
      oracle.step(run.batches[step]);
    }
    for (const auto& [name, expected] : oracle.state()) close(run.state.at(name), expected, name);
  }
}

TEST_P(Rules, HaveTheSameBitsForEveryPlacementAndNumberOfRanks) {
  Draw draw(2);
  const bool may_columns = GetParam() != RowRule::kRowWiseAdaGrad;
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    for (int round = 0; round < (world < 5 ? 10 : 3); ++round) {
      const EmbeddingOptions options{.dtype = round % 2 == 0 ? at::kFloat : at::kDouble,
                                     .seed = 7,
                                     .optimizer = {.rule = GetParam(), .learning_rate = 0.1},
                                     .symmetric = round % 3 != 0};
      const int64_t num_samples = round % 4 == 0 ? 4 * world : draw.below<int64_t>(30);
      const OneRun run = run_on_one(draw, make_tables(), options, num_samples, 4);
      check_ranks(run, place(draw, make_tables(), world, may_columns), options,
                  draw_cuts(draw, num_samples, world));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EmbeddingTables, Rules,
                         testing::Values(RowRule::kSgd, RowRule::kAdaGrad, RowRule::kRowWiseAdaGrad,
                                         RowRule::kLazyAdam, RowRule::kAdam),
                         [](const auto& info) {
                           std::string name = name_of(kRowRules, info.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(EmbeddingTables, HaveTheSameBitsForEveryNumberOfThreads) {
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
    compare(runs[1].outputs[step], runs[0].outputs[step], same_bits);
  }
  assert_same_bits(runs[1].state, runs[0].state);
}

// Saved on three ranks by rows, loaded on two by columns.
TEST(EmbeddingTables, GoOnAtAnotherPlacementWithTheSameBits) {
  Draw draw(6);
  for (const RowRule rule : {RowRule::kAdaGrad, RowRule::kLazyAdam, RowRule::kAdam}) {
    const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = rule, .learning_rate = 0.1}};
    const OneRun all = run_on_one(draw, make_tables(), options, 13, 8);
    const auto placed = [](const mesh::Placement& placement) {
      std::vector<TableConfig> tables = make_tables();
      for (TableConfig& table : tables) table.placement = placement;
      return tables;
    };
    std::map<std::string, at::Tensor> saved;
    std::mutex mutex;
    const auto run_steps = [&](EmbeddingTables& tables, comm::Communicator& group, size_t first,
                               size_t end) {
      const mesh::Range own = mesh::split_range(13, group.size(), group.rank());
      const int64_t last = own.offset + own.size;
      for (size_t step = first; step < end; ++step) {
        const JaggedIds& ids = all.batches[step];
        const Embeddings outputs = tables.look_up(samples_of(ids, 5, own.offset, last));
        run_backward(outputs,
                     samples_of(all.gradients[step], ids, make_tables(), own.offset, last));
      }
    };
    run_ranks(3, [&](comm::Communicator& group) {
      EmbeddingTables tables(placed(mesh::Placement::sharded(0)), &group, options);
      run_steps(tables, group, 0, 3);
      for (const TableTensor& tensor : tables.state()) {
        const std::lock_guard lock(mutex);
        at::Tensor& whole = saved[tensor.name];
        if (!whole.defined()) whole = at::zeros(tensor.layout.shape(), tensor.local.options());
        const mesh::Box box = tensor.layout.local_box(tensor.rank);
        whole.narrow(0, box.offset[0], box.size[0]).copy_(tensor.local);
      }
    });
    run_ranks(2, [&](comm::Communicator& group) {
      EmbeddingTables tables(placed(mesh::Placement::sharded(1)), &group, options);
      for (const TableTensor& tensor : tables.state()) {
        tensor.local.copy_(box_of(saved.at(tensor.name), tensor.layout, tensor.rank));
      }
      tables.set_num_steps(3);
      run_steps(tables, group, 3, 8);
      expect_state(tables, all.state);
    });
  }
}

// One placement for all tables, so that each is there in every world.
TEST(EmbeddingTables, EveryPlacementAloneHasTheBitsOfOneRank) {
  const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = RowRule::kAdaGrad}};
  for (const int world : {2, 3, 4}) {
    for (int kind = 0; kind < 5; ++kind) {
      Draw draw(static_cast<uint64_t>(10 * world + kind));
      const OneRun run = run_on_one(draw, make_tables(), options, 13, 3);
      std::vector<TableConfig> tables = make_tables();
      for (TableConfig& table : tables) {
        table.placement =
            std::array{mesh::Placement::replicated(), whole_on(world - 1, table.rows, world),
                       mesh::Placement::sharded(0), mesh::Placement::sharded(1),
                       rows_on(1, world - 1, table.rows, world)}[kind];
      }
      check_ranks(run, tables, options, draw_cuts(draw, 13, world));
    }
  }
}

// The gradients themselves, and those of two backwards before one step.
TEST(EmbeddingTables, KeepsGradientsForAStepOfTheirOwn) {
  Draw draw(5);
  for (const int world : {1, 2, 3, 4}) {
    const EmbeddingOptions options{.dtype = at::kDouble,
                                   .optimizer = {.rule = RowRule::kSgd, .learning_rate = 0.5},
                                   .update = UpdateTime::kOnStep};
    const std::vector<TableConfig> tables = place(draw, make_tables(), world, true);
    const JaggedIds batches[] = {draw_ids(draw, tables, 10, at::kDouble),
                                 draw_ids(draw, tables, 10, at::kDouble)};
    EmbeddingOracle oracle(tables, options);
    Embeddings seeds[2];
    for (int i = 0; i < 2; ++i) {
      const Embeddings expected = oracle.look_up(batches[i]);
      seeds[i] = gradients_of(expected, i);
      run_backward(expected, seeds[i]);
    }
    const std::vector<int64_t> cuts = draw_cuts(draw, 10, world);
    run_ranks(world, [&](comm::Communicator& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const int64_t begin = cuts[rank], end = cuts[rank + 1];
      EmbeddingTables many(tables, &group, options);
      std::vector<at::Tensor> before;
      for (int i = 0; i < 2; ++i) {
        const Embeddings outputs =
            many.look_up(samples_of(batches[i], std::ssize(tables), begin, end));
        run_backward(outputs, samples_of(seeds[i], batches[i], tables, begin, end));
      }
      ASSERT_EQ(many.gradients().size(), tables.size());
      std::map<std::string, at::Tensor> expected;
      for (size_t t = 0; t < tables.size(); ++t) {
        const RowGradients& found = many.gradients()[t];
        const mesh::Layout layout = layout_of(tables[t], {"data", world});
        const at::Tensor whole = at::zeros({tables[t].rows, found.sums.size(1)}, at::kDouble)
                                     .index_copy_(0, found.rows, found.sums);
        mesh::Box box = layout.local_box(group.rank());
        close(whole.narrow(0, box.offset[0], box.size[0]).contiguous(),
              box_of(oracle.gradient(t), layout, group.rank()), tables[t].name);
      }
      const std::vector<TableTensor> state = many.state();
      for (const TableTensor& tensor : state) before.push_back(tensor.local.clone());
      many.step(0.25);
      for (size_t t = 0; t < tables.size(); ++t) {
        const at::Tensor gradient = box_of(oracle.gradient(t), state[t].layout, group.rank());
        close(state[t].local, before[t] - 0.125 * gradient, "weights of " + tables[t].name);
      }
      EXPECT_TRUE(many.gradients().empty());
    });
  }
}

// pytorch/torchrec#1298: wrong sums when one batch has an id many times, in one sample and in
// several, on one rank and on several.
TEST(EmbeddingTables, AddsAllGradientsOfDuplicateIds) {
  std::vector<TableConfig> tables{{.name = "t", .rows = 4, .width = 2}};
  const EmbeddingOptions options{.dtype = at::kDouble,
                                 .optimizer = {.rule = RowRule::kSgd, .learning_rate = 1}};
  for (const int world : {1, 2, 3, 4}) {
    for (const auto& placement : {mesh::Placement::replicated(), mesh::Placement::sharded(0),
                                  mesh::Placement::sharded(1)}) {
      tables[0].placement = placement;
      run_ranks(world, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options);
        const at::Tensor before = many.state()[0].local.clone();
        // Each rank: one sample with the id 2 three times, five samples with it once.
        const JaggedIds ids = jagged_ids(at::full({8}, 2, at::kLong),
                                         at::tensor({3, 1, 1, 1, 1, 1}, at::kLong).view({1, 6}));
        many.look_up(ids).pooled_BW.sum().backward();
        const TableTensor after = many.state()[0];
        const at::Tensor step = at::zeros({4, 2}, at::kDouble);
        step[2].fill_(8 * world);
        assert_close(after.local, before - box_of(step, after.layout, after.rank), 0, 1e-14,
                     "weights");
      });
    }
  }
}

// pytorch/torchrec#3030 and #3673: look-ups that gave zeros for rows that are not, such as wide
// ones. #2773: a rank without samples. #2362: a mean over rows of several ranks.
TEST(EmbeddingTables, FindsNoRowsOfZeros) {
  std::vector<TableConfig> tables{
      {.name = "wide", .rows = 40, .width = 1280},
      {.name = "mean", .rows = 40, .width = 2, .pooling = Pooling::kMean}};
  const EmbeddingOptions options{.dtype = at::kDouble, .optimizer = {.rule = RowRule::kSgd}};
  for (const int world : {2, 3}) {
    for (const auto& placement : {mesh::Placement::replicated(), mesh::Placement::sharded(0),
                                  mesh::Placement::sharded(1), whole_on(0, 40, world)}) {
      tables[0].placement = tables[1].placement = placement;
      run_ranks(world, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options);
        EmbeddingOracle oracle(tables, options);
        const int64_t B = group.rank() == 1 ? 0 : 40;
        const at::Tensor every = at::arange(B, at::kLong);
        const at::Tensor ids = at::cat({every, at::stack({every, 39 - every}, 1).view({-1})});
        const at::Tensor lengths =
            at::stack({at::full({B}, 1, at::kLong), at::full({B}, 2, at::kLong)});
        const at::Tensor found = many.look_up(jagged_ids(ids, lengths)).pooled_BW;
        EXPECT_EQ(found.sizes(), (std::vector<int64_t>{B, 1282}));
        EXPECT_TRUE(found.ne(0).all().item<bool>());
        close(found.detach(), oracle.look_up(jagged_ids(ids, lengths)).pooled_BW.detach(), "rows");
      });
    }
  }
}

TEST(EmbeddingTables, RefusesIdsOutsideATable) {
  EmbeddingTables tables(
      {{.name = "user", .rows = 5, .width = 2}, {.name = "item", .rows = 3, .width = 2}}, nullptr);
  const auto message_of = [&](std::vector<int64_t> ids) -> std::string {
    try {
      tables.look_up(
          jagged_ids(at::tensor(ids, at::kLong), at::tensor({1, 0, 0, 2}, at::kLong).view({2, 2})));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of({4, 0, 2}), "");
  EXPECT_EQ(message_of({5, 0, 2}),
            "embedding table \"user\": sample 0 of this rank has the id 5; expected 0 to 4");
  EXPECT_EQ(message_of({4, 0, -1}),
            "embedding table \"item\": sample 1 of this rank has the id -1; expected 0 to 2");
}

TEST(EmbeddingTables, WithoutGradientsReplicatedTablesSendNothing) {
  run_ranks(2, [](comm::Communicator& group) {
    CountingCommunicator counting(group);
    EmbeddingTables tables({{.name = "t", .rows = 9, .width = 2}}, &counting);
    const c10::AutoGradMode no_grad(false);
    const Embeddings found = tables.look_up(jagged_ids(at::arange(9), at::ones({1, 9}, at::kLong)));
    EXPECT_EQ(counting.sent_by_all_to_all(), 16);
    assert_same_bits(found.pooled_BW, tables.state()[0].local, "rows");
  });
}

// Three ranks of 5, 0 and 2 samples: rank 0's lie in the subtrees 0-3 and 4, rank 2's in 5 and 6.
TEST(EmbeddingTables, SendsTheBytesItStates) {
  const std::vector<TableConfig> tables{
      {.name = "rows", .rows = 6, .width = 4, .placement = mesh::Placement::sharded(0)},
      {.name = "columns", .rows = 6, .width = 5, .placement = mesh::Placement::sharded(1)},
      {.name = "replicated", .rows = 6, .width = 7}};
  run_ranks(3, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    EmbeddingTables many(tables, &counting, {.optimizer = {.rule = RowRule::kSgd}});
    // Samples 0 and 4 of rank 0 have the ids 0 and 4, the others only 0; rank 2's the ids 5 and 3.
    const int rank = group.rank();
    const std::vector<int64_t> of_table = rank == 0   ? std::vector<int64_t>{0, 4, 0, 0, 0, 0, 4}
                                          : rank == 2 ? std::vector<int64_t>{5, 3}
                                                      : std::vector<int64_t>{};
    const std::vector<int64_t> lengths = rank == 0   ? std::vector<int64_t>{2, 1, 1, 1, 2}
                                         : rank == 2 ? std::vector<int64_t>{1, 1}
                                                     : std::vector<int64_t>{};
    const at::Tensor ids = at::tensor(of_table, at::kLong);
    const at::Tensor lengths_TB = at::tensor(lengths, at::kLong).expand({3, -1}).contiguous();
    int64_t before = 0;
    const auto sent = [&] {
      const int64_t bytes = counting.sent_by_all_to_all() - before;
      before += bytes;
      return bytes;
    };
    const StartedLookUp started = many.start(jagged_ids(at::cat({ids, ids, ids}), lengths_TB));
    const int64_t counts = 2 * 8 * 4;
    // Rank 0 keeps row 0 of the first table and sends row 4; rank 2 keeps 5 and sends 3. Each id
    // has 4 bytes and 1 for the subtrees.
    EXPECT_EQ(sent(), counts + (rank == 1 ? 0 : 5 * (1 + 2 * 2 + 2 * 2)));
    const Embeddings outputs = many.finish(started);
    // Ranks 0 and 1 have two columns of five, rank 2 one. Rank 1 has rows 2 and 3 of the first
    // table.
    const int64_t numbers = rank == 0 ? 2 * 2 : rank == 1 ? 4 + 4 * 2 : 4 + 2 * 1;
    EXPECT_EQ(sent(), 4 * numbers);
    outputs.pooled_BW.sum().backward();
    // Both ids of rank 0 have samples in both subtrees; each of rank 2's has one.
    const int64_t sums = rank == 0   ? 2 * 4 + 4 * 2 + 4 * 1 + 4 * 7 * 2
                         : rank == 2 ? 1 * 4 + 2 * 2 * 2 + 2 * 7 * 2
                                     : 0;
    EXPECT_EQ(sent(), 4 * sums);
    EXPECT_EQ(counting.ledger().of(group.name()).calls, 4);
  });
}

// Ids that begin to travel before an update read the rows after it.
TEST(EmbeddingTables, AnEarlyStartReadsTheNewestRows) {
  run_ranks(2, [](comm::Communicator& group) {
    const JaggedIds ids = jagged_ids(at::arange(6), at::ones({1, 6}, at::kLong));
    EmbeddingTables tables(
        {{.name = "t", .rows = 6, .width = 2, .placement = mesh::Placement::sharded(0)}}, &group,
        {.optimizer = {.rule = RowRule::kSgd, .learning_rate = 1}});
    const Embeddings first = tables.look_up(ids);
    const StartedLookUp early = tables.start(ids);
    first.pooled_BW.sum().backward();
    assert_close(tables.finish(early).pooled_BW.detach(), first.pooled_BW.detach() - 2, 0, 1e-6,
                 "rows");
  });
}

TEST(EmbeddingTables, RefusesColumnsForRowWiseAdaGrad) {
  EXPECT_THROW(EmbeddingTables(
                   {{.name = "t", .rows = 6, .width = 2, .placement = mesh::Placement::sharded(1)}},
                   nullptr),
               ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
