#include "trireme/model/family/token_probe.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

std::vector<int64_t> numbers(const at::Tensor& rows) {
  const at::Tensor host = rows.contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

TokenBatch batch_of(int64_t B, int64_t T) {
  return {.B = B, .T = T, .positions_T = at::arange(T, at::kLong)};
}

TEST(TokenProbe, WholeSequencesAreAllRowsInTheirOrder) {
  const verify::ProbeRows rows = rows_of_tokens(batch_of(2, 3), 6);
  EXPECT_EQ(rows.num_rows, 6);
  EXPECT_FALSE(rows.rows.defined());
}

// A rank of the context axis has the ends of the sequences.
TEST(TokenProbe, PartsOfSequencesAreCountedInWholeOnes) {
  const verify::ProbeRows rows = rows_of_tokens(2, at::tensor({0, 1, 6, 7}, at::kLong), 8);
  EXPECT_EQ(rows.num_rows, 16);
  EXPECT_EQ(numbers(rows.rows), (std::vector<int64_t>{0, 1, 6, 7, 8, 9, 14, 15}));
}

TEST(TokenProbe, SequenceParallelRowsAreThoseThatTheRankHolds) {
  TokenBatch batch = batch_of(2, 3);
  batch.held_rows = mesh::Range{4, 2};
  const verify::ProbeRows rows = rows_of_tokens(batch, 2);
  EXPECT_EQ(rows.num_rows, 6);
  EXPECT_EQ(numbers(rows.rows), (std::vector<int64_t>{4, 5}));
  EXPECT_FALSE(rows_of_tokens(batch, 6).rows.defined());
}

TEST(TokenProbe, ARowForEachSequenceHasNoTokens) {
  const verify::ProbeRows rows = rows_of_tokens(batch_of(2, 3), 2);
  EXPECT_EQ(rows.num_rows, 2);
  EXPECT_THROW(rows_of_tokens(batch_of(2, 3), 5), InternalError);
}

class OneBlock : public verify::ProbeSink {
 public:
  void put(const verify::ProbedBlock& block) override { blocks.push_back(block); }
  std::vector<verify::ProbedBlock> blocks;
};

TEST(TokenProbe, OnlyTrainingIsProbed) {
  OneBlock sink;
  const verify::ProbeScope scope({.sink = &sink, .num_samples = 4, .samples = 2});
  TokenBatch batch = batch_of(2, 3);
  probe_tokens("x", at::zeros({2, 3, 5}), batch);
  EXPECT_TRUE(sink.blocks.empty());
  batch.training = TrainingPlace{};
  probe_tokens("x", at::zeros({2, 3, 5}), batch);
  ASSERT_EQ(sink.blocks.size(), 1U);
  EXPECT_EQ(sink.blocks[0].whole, (std::vector<int64_t>{12, 5}));
}

// Those of a diffusion transformer.
TEST(TokenProbe, RowsOfSequencesBehindTheTokensAreLeftOut) {
  OneBlock sink;
  const verify::ProbeScope scope({.sink = &sink, .num_samples = 4, .samples = 2});
  TokenBatch batch = batch_of(2, 3);
  batch.training = TrainingPlace{};
  const at::Tensor x = at::arange(16.0).view({8, 2}).requires_grad_();
  const at::Tensor y = probe_tokens("x", x, batch);
  EXPECT_TRUE(at::equal(y, x));
  (y * x.detach()).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach()));
  ASSERT_EQ(sink.blocks.size(), 2U);
  for (const verify::ProbedBlock& block : sink.blocks) {
    EXPECT_EQ(block.whole, (std::vector<int64_t>{12, 2})) << block.name;
    EXPECT_TRUE(at::equal(block.values, x.detach().narrow(0, 0, 6))) << block.name;
  }
  // Two rows of tokens, and two of sequences.
  batch.held_rows = mesh::Range{4, 2};
  probe_tokens("part", at::zeros({4, 2}), batch);
  ASSERT_EQ(sink.blocks.size(), 3U);
  EXPECT_EQ(sink.blocks[2].boxes.size(), 1U);
  EXPECT_EQ(sink.blocks[2].boxes[0].offset, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(sink.blocks[2].boxes[0].size, (std::vector<int64_t>{2, 2}));
}

}  // namespace
}  // namespace trireme::model
