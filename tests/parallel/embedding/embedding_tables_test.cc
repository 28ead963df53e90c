#include "trireme/parallel/embedding/embedding_tables.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

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
        expect_close(whole.narrow(0, box.offset[0], box.size[0]).contiguous(),
                     box_of(oracle.gradient(t), layout, group.rank()), tables[t].name);
      }
      const std::vector<TableTensor> state = many.state();
      for (const TableTensor& tensor : state) before.push_back(tensor.local.clone());
      many.step(0.25);
      for (size_t t = 0; t < tables.size(); ++t) {
        const at::Tensor gradient = box_of(oracle.gradient(t), state[t].layout, group.rank());
        expect_close(state[t].local, before[t] - 0.125 * gradient, "weights of " + tables[t].name);
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
        expect_close(found.detach(), oracle.look_up(jagged_ids(ids, lengths)).pooled_BW.detach(),
                     "rows");
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

TEST(EmbeddingTables, RefuseABackwardThatTheirStartDidNotExpect) {
  EmbeddingTables tables({{.name = "t", .rows = 9, .width = 2}}, nullptr);
  const auto start = [&] {
    const c10::AutoGradMode no_grad(false);
    return tables.start(jagged_ids(at::arange(9), at::ones({1, 9}, at::kLong)));
  };
  const Embeddings found = tables.finish(start());
  EXPECT_THROW(found.pooled_BW.sum().backward(), ConfigError);
  EXPECT_THROW(tables.set_learning_rate(-1), ConfigError);
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

// Ranks 0 and 2 have three columns each, which are two subtrees, and rank 1 has none.
TEST(EmbeddingTables, SendTheSquaresOfRowsThatAreSplitByColumns) {
  const TableConfig table{
      .name = "t", .rows = 9, .width = 6, .placement = mesh::Placement::sharded(1, {0, 3, 3, 6})};
  run_ranks(3, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    int64_t before = 0;
    const auto sent = [&] {
      const int64_t bytes = counting.sent_by_all_to_all() - before;
      before += bytes;
      return bytes;
    };
    // Each rank has two samples with one id: 0 and 1, 1 and 2, or 2 and 3.
    const JaggedIds ids = jagged_ids(at::tensor({group.rank(), group.rank() + 1}, at::kLong),
                                     at::ones({1, 2}, at::kLong));
    const int64_t to_others = group.rank() == 1 ? 0 : 4 * 2 * 4 * 2;  // rows, sums, bytes, ranks
    EmbeddingTables at_once({table}, &counting, {});
    at_once.look_up(ids).pooled_BW.sum().backward();
    EXPECT_EQ(at_once.counts().sent_bytes, sent());
    EmbeddingTables later({table}, &counting, {.update = UpdateTime::kOnStep});
    later.look_up(ids).pooled_BW.sum().backward();
    EXPECT_EQ(later.counts().sent_bytes, sent());
    EXPECT_EQ(later.counts().sent_bytes + to_others, at_once.counts().sent_bytes);
    const std::vector<at::Tensor> squares = later.gradient_squares();
    EXPECT_EQ(sent(), group.rank() == 2 ? 4 * 2 * 8 : 0);
    ASSERT_EQ(squares[0].defined(), group.rank() == 0);
    if (group.rank() == 0) {
      assert_same_bits(squares[0], at::tensor({6.0, 24.0, 24.0, 6.0}, at::kDouble), "squares");
    }
    later.step();
    EXPECT_EQ(sent(), to_others);
    EXPECT_EQ(later.counts().sent_bytes, at_once.counts().sent_bytes);
    EXPECT_EQ(later.counts().received_bytes, at_once.counts().received_bytes);
  });
}

std::vector<TableConfig> weighted_tables() {
  std::vector<TableConfig> tables = make_tables();
  tables.push_back({.name = "wide", .rows = 9, .width = 37, .is_weighted = true});
  return tables;
}

// Beside torch's embedding_bag, and with the bits of one rank.
TEST(EmbeddingTables, GiveTheWeightsOfIdsTheirGradients) {
  Draw draw(12);
  const EmbeddingOptions options{.dtype = at::kDouble, .optimizer = {.learning_rate = 0.1}};
  const auto T = std::ssize(weighted_tables());
  for (const int world : {1, 2, 3, 4}) {
    for (int round = 0; round < 5; ++round) {
      const int64_t num_samples = draw.below<int64_t>(20);
      const std::vector<TableConfig> tables = place(draw, weighted_tables(), world, true);
      JaggedIds ids = draw_ids(draw, tables, num_samples, at::kDouble);
      const at::Tensor weights = ids.weights;
      const auto gradients_from = [&](auto& source) {
        ids.weights = weights.clone().requires_grad_();
        const Embeddings found = source.look_up(ids);
        run_backward(found, gradients_of(found, round));
        return ids.weights.grad();
      };
      EmbeddingOracle oracle(tables, options);
      EmbeddingTables one(weighted_tables(), nullptr, options);
      const at::Tensor expected = gradients_from(one);
      expect_close(expected, gradients_from(oracle), "gradients of weights");
      const Embeddings seeds = gradients_of(oracle.look_up(ids), round);
      JaggedIds expected_ids = ids;
      expected_ids.weights = expected;
      ids.weights = weights;
      const std::vector<int64_t> cuts = draw_cuts(draw, num_samples, world);
      run_ranks(world, [&](comm::Communicator& group) {
        CountingCommunicator counting(group);
        const auto rank = static_cast<size_t>(group.rank());
        const int64_t begin = cuts[rank], end = cuts[rank + 1];
        int64_t sent[2];
        for (const bool requires_grad : {false, true}) {
          EmbeddingTables many(tables, &counting, options);
          JaggedIds own = samples_of(ids, T, begin, end);
          own.weights.requires_grad_(requires_grad);
          const int64_t before = counting.sent_by_all_to_all();
          run_backward(many.look_up(own), samples_of(seeds, ids, tables, begin, end));
          sent[requires_grad ? 1 : 0] = counting.sent_by_all_to_all() - before;
          ASSERT_EQ(own.weights.grad().defined(), requires_grad);
          if (!requires_grad) continue;
          assert_same_bits(own.weights.grad(), samples_of(expected_ids, T, begin, end).weights,
                           "gradients of weights");
        }
        EXPECT_EQ(sent[0], sent[1]);
      });
    }
  }
}

// Their rows are those of the look-up, although another backward has updated them since.
TEST(EmbeddingTables, GiveWeightsTheGradientsOfTheRowsThatWereRead) {
  EmbeddingTables tables({{.name = "t", .rows = 3, .width = 2, .is_weighted = true}}, nullptr,
                         {.optimizer = {.rule = RowRule::kSgd, .learning_rate = 1}});
  const at::Tensor before = tables.state()[0].local.sum(1);
  const auto ids = [&] {
    return jagged_ids(at::arange(3), at::ones({1, 3}, at::kLong), at::ones({3}).requires_grad_());
  };
  const JaggedIds first = ids(), second = ids();
  const at::Tensor found[] = {tables.look_up(first).pooled_BW, tables.look_up(second).pooled_BW};
  for (const at::Tensor& each : found) each.sum().backward();
  assert_same_bits(first.weights.grad(), before, "first");
  assert_same_bits(second.weights.grad(), before, "second");
  const c10::AutoGradMode no_grad(false);
  EXPECT_FALSE(tables.look_up(ids()).pooled_BW.requires_grad());
}

}  // namespace
}  // namespace trireme::parallel
