#include "trireme/parallel/embedding/remote_table.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::parallel {
namespace {

using namespace harness;
using ::testing::HasSubstr;

std::vector<TableConfig> two_tables() {
  return {{.name = "a", .rows = 50, .width = 3},
          {.name = "b", .rows = 7, .width = 4, .pooling = Pooling::kNone}};
}

// Has the rows of tables that are in memory, and brings them late.
class HeldRows : public RemoteRows {
 public:
  HeldRows(const std::vector<TableConfig>& tables, const EmbeddingOptions& options) {
    for (const TableConfig& table : tables) {
      weights_.push_back(initial_rows(table, options.dtype, options.seed, 0, table.rows));
      optimizers_.emplace_back(options.optimizer, weights_.back());
    }
  }

  void pull(size_t table, std::span<const int64_t> rows, const at::Tensor& out) override {
    EXPECT_TRUE(std::ranges::is_sorted(rows));
    num_pulled += std::ssize(rows);
    waiting_.emplace_back(out, select(weights_[table], rows));
  }
  void wait_pulled() override {
    for (const auto& [out, rows] : std::exchange(waiting_, {})) out.copy_(rows);
  }
  void prefetch(size_t table, std::span<const int64_t> rows) override {
    prefetched[table].assign(rows.begin(), rows.end());
  }
  void push(std::span<const RowGradients> gradients, double learning_rate) override {
    for (size_t t = 0; t < gradients.size(); ++t) {
      const at::Tensor& rows = gradients[t].rows;
      optimizers_[t].begin_step(learning_rate);
      optimizers_[t].update({rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel())},
                            gradients[t].sums.const_data_ptr());
    }
  }
  void settle() override { ++num_settled; }
  Share saved_share() const override { return {1, 3}; }
  at::Tensor read(size_t table, size_t tensor, int64_t begin, int64_t end) override {
    return whole(table, tensor).slice(0, begin, end).clone();
  }
  std::vector<mesh::Range> wanted_rows(size_t table) const override { return wanted[table]; }
  void write(size_t table, size_t tensor, int64_t begin, const at::Tensor& values) override {
    whole(table, tensor).narrow(0, begin, values.size(0)).copy_(values);
  }

  at::Tensor whole(size_t table, size_t tensor) const {
    return tensor == 0 ? weights_[table] : optimizers_[table].states()[tensor - 1].values;
  }
  int64_t num_pulled = 0;
  int num_settled = 0;
  std::map<size_t, std::vector<int64_t>> prefetched;
  std::vector<mesh::Range> wanted[2];

 private:
  static at::Tensor select(const at::Tensor& weights, std::span<const int64_t> rows) {
    return weights.index_select(0, at::tensor(std::vector<int64_t>(rows.begin(), rows.end())));
  }
  std::vector<at::Tensor> weights_;
  std::vector<RowOptimizer> optimizers_;
  std::vector<std::pair<at::Tensor, at::Tensor>> waiting_;
};

// Ids of both tables, some more than once; up to `most` a sample.
JaggedIds draw_ids(Draw& draw, int64_t samples, int64_t most) {
  std::vector<int64_t> values, lengths;
  for (const int64_t rows : {50, 7}) {
    for (int64_t i = 0; i < samples; ++i) {
      lengths.push_back(draw.below<int64_t>(most + 1));
      for (int64_t k = 0; k < lengths.back(); ++k) values.push_back(draw.below<int64_t>(rows));
    }
  }
  return jagged_ids(at::tensor(values, at::kLong),
                    at::tensor(lengths, at::kLong).view({2, samples}));
}

EmbeddingOptions options_of(RowRule rule) {
  return {.dtype = at::kDouble,
          .seed = 9,
          .optimizer = {.rule = rule, .learning_rate = 0.1},
          .update = UpdateTime::kOnStep};
}

TEST(RemoteTable, HasTheBitsOfTablesInMemory) {
  Draw draw(5);
  for (const RowRule rule :
       {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kRowWiseAdaGrad, RowRule::kLazyAdam}) {
    EmbeddingOptions options = options_of(rule);
    EmbeddingTables local(two_tables(), nullptr, options);
    const auto rows = std::make_shared<HeldRows>(two_tables(), options);
    options.remote = rows;
    EmbeddingTables remote(two_tables(), nullptr, options);
    for (int step = 0; step < 6; ++step) {
      const JaggedIds ids = draw_ids(draw, 1 + step, step == 3 ? 0 : 40);
      for (EmbeddingTables* const tables : {&local, &remote}) {
        const Embeddings found = tables->look_up(ids);
        const at::Tensor loss = found.pooled_BW.square().sum() + found.apart[0].sin().sum();
        if (step != 4) loss.backward();  // a step without gradients
        tables->step(step % 2 == 0 ? 1 : 0.25);
      }
    }
    const std::vector<TableTensor> expected = local.state();
    size_t at = 0;
    for (const size_t table : {0UL, 1UL}) {
      const size_t tensors = expected.size() / 2;
      for (size_t tensor = 0; tensor < tensors; ++tensor, ++at) {
        assert_same_bits(rows->whole(table, tensor), expected[at].local, expected[at].name);
      }
    }
  }
}

TEST(RemoteTable, PullsEachRowOfALookUpOnceAndReadsNextOnesAhead) {
  EmbeddingOptions options = options_of(RowRule::kSgd);
  const auto rows = std::make_shared<HeldRows>(two_tables(), options);
  options.remote = rows;
  EmbeddingTables tables(two_tables(), nullptr, options);
  const at::Tensor lengths = at::tensor({4L, 1L}).view({2, 1});
  const JaggedIds now = jagged_ids(at::tensor({3L, 3L, 41L, 3L, 6L}), lengths);
  const JaggedIds next = jagged_ids(at::tensor({9L, 2L, 2L, 9L, 0L}), lengths);
  const StartedLookUp first = tables.start(now);
  const StartedLookUp second = tables.start(next);
  (void)tables.finish(first);
  EXPECT_EQ(rows->num_pulled, 3);
  EXPECT_EQ(rows->prefetched[0], (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(rows->prefetched[1], std::vector<int64_t>{0});
  (void)tables.finish(second);
  tables.settle();
  EXPECT_EQ(rows->num_settled, 1);
}

TEST(RemoteTable, SavesItsShareAndLoadsWhatIsWantedOfIt) {
  EmbeddingOptions options = options_of(RowRule::kRowWiseAdaGrad);
  const auto rows = std::make_shared<HeldRows>(two_tables(), options);
  options.remote = rows;
  EmbeddingTables tables(two_tables(), nullptr, options);
  rows->wanted[0] = {{0, 10}, {20, 3}, {30, 20}};
  const std::vector<TableTensor> state = tables.state();
  ASSERT_EQ(state.size(), 4U);
  EXPECT_EQ(state[0].name, "a.weight");
  EXPECT_EQ(state[1].name, "sum.a.weight");
  EXPECT_TRUE(state[0].local.is_meta());
  EXPECT_EQ(state[0].layout.local_box(state[0].rank).offset[0], 17);  // 17, 17, 16
  EXPECT_EQ(state[0].local.sizes(), at::IntArrayRef({17, 3}));
  EXPECT_EQ(state[1].local.sizes(), at::IntArrayRef({17}));
  assert_same_bits(state[0].stored->read(2, 5), rows->whole(0, 0).slice(0, 19, 22).contiguous(),
                   "rows");
  const std::vector<int64_t> some{1, 4};
  assert_same_bits(state[0].stored->read(some),
                   rows->whole(0, 0).index_select(0, at::tensor({18L, 21L})), "some rows");
  EXPECT_EQ(state[0].stored->wanted_rows(17), (std::vector<mesh::Range>{{3, 3}, {13, 4}}));
  state[1].stored->write(3, at::ones({2}, at::kDouble));
  EXPECT_EQ(rows->whole(0, 1).sum().item<double>(), 2);
}

TEST(RemoteTable, RefusesWhatOnlyRowsInMemoryCanDo) {
  const auto refusal = [](const TableConfig& table, EmbeddingOptions options) {
    options.remote = std::make_shared<HeldRows>(two_tables(), options_of(RowRule::kSgd));
    return message_of<ConfigError>([&] { EmbeddingTables({table}, nullptr, options); });
  };
  TableConfig table = two_tables()[0];
  EXPECT_THAT(refusal(table, options_of(RowRule::kAdam)), HasSubstr("lazy-adam"));
  EmbeddingOptions options = options_of(RowRule::kSgd);
  options.update = UpdateTime::kInBackward;
  EXPECT_THAT(refusal(table, options), HasSubstr("kOnStep"));
  table.memory_bytes = 64;
  table.folder = ".";
  EXPECT_THAT(refusal(table, options_of(RowRule::kSgd)), HasSubstr("memory limit"));
  table = two_tables()[0];
  table.is_open = true;
  table.rows = kOpenRows;
  EXPECT_THAT(refusal(table, options_of(RowRule::kSgd)), HasSubstr("open vocabulary"));
}

}  // namespace
}  // namespace trireme::parallel
