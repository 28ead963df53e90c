#include "trireme/dataset/batch_loader.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

class BatchLoaderTest : public testing::Test {
 protected:
  static constexpr int64_t kGlobalBatch = 24;

  // The whole step, put together from its ranks and microbatches.
  at::Tensor step_tokens(int64_t step, int data_size, int64_t micro_batch) const {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < data_size; ++rank) {
      const BatchLoader loader(source_, {kGlobalBatch, micro_batch, rank, data_size});
      for (int64_t i = 0; i < loader.num_microbatches(); ++i)
        parts.push_back(loader.microbatch(step, i)["tokens"]);
    }
    return at::cat(parts);
  }

  TemporaryFolder folder_;
  std::string prefix_ = (write_counting_file(folder_ / "a", 1000), folder_ / "a");
  TokenSource source_{prefix_, {.sequence_length = 7}};
};

TEST_F(BatchLoaderTest, TargetsAreTheTokensOneToTheRight) {
  const BatchLoader loader(source_, {8, 4});
  const Batch batch = loader.microbatch(0, 1);
  ASSERT_EQ(batch["tokens"].sizes(), (std::vector<int64_t>{4, 7}));
  ASSERT_EQ(batch["tokens"].scalar_type(), at::kLong);
  harness::assert_same_bits(batch["targets"], batch["tokens"] + 1, "targets of a counting file");
}

TEST_F(BatchLoaderTest, HasDocumentsWhenAsked) {
  EXPECT_FALSE(BatchLoader(source_, {8, 4}).microbatch(0, 0)["documents"].defined());
  write_token_file(folder_ / "b", {{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}});
  const TokenSource source(folder_ / "b", {.sequence_length = 4, .documents = true});
  const BatchLoader loader(source, {.global_batch = 3, .micro_batch = 3, .shuffle = false});
  const Batch batch = loader.microbatch(0, 0);
  EXPECT_TRUE(batch["documents"].eq(batch["tokens"].ge(5)).all().item<bool>());
}

TEST_F(BatchLoaderTest, AStepHoldsItsSamplesInOrder) {
  const at::Tensor tokens = step_tokens(3, 1, 1);
  const SampleOrder order(source_.size(), /*seed=*/0, /*shuffle=*/true);
  std::vector<int64_t> sample(8);
  for (int64_t b = 0; b < kGlobalBatch; ++b) {
    source_.read_tokens(order.index(3 * kGlobalBatch + b), sample);
    EXPECT_EQ(tokens[b][0].item<int64_t>(), sample[0]);
  }
}

TEST_F(BatchLoaderTest, AStepIsTheSameAtEveryLayout) {
  for (const int64_t step : {0, 1, 5, 40}) {  // 40 lies in a later epoch
    const at::Tensor expected = step_tokens(step, 1, 1);
    for (const int data_size : {1, 2, 3, 4, 6, 8, 24})
      for (const int64_t micro_batch : {1, 2, 3, 4, 6, 24}) {
        if (kGlobalBatch % (micro_batch * data_size) != 0) continue;
        harness::assert_same_bits(step_tokens(step, data_size, micro_batch), expected,
                                  concat(data_size, " ranks, microbatch ", micro_batch));
      }
  }
}

TEST_F(BatchLoaderTest, RanksHoldContiguousBlocks) {
  const BatchLoader loader(source_, {24, 2, 2, 3});
  ASSERT_EQ(loader.num_microbatches(), 4);
  EXPECT_EQ(loader.first_sample(0, 0), 16);
  EXPECT_EQ(loader.first_sample(0, 3), 22);
  EXPECT_EQ(loader.first_sample(10, 1), 258);
}

TEST_F(BatchLoaderTest, ResumingAtAnyStepReadsTheSame) {
  const BatchLoader whole(source_, {24, 4, 1, 2});
  std::vector<at::Tensor> tokens;
  for (int64_t step = 0; step < 12; ++step)
    for (int64_t i = 0; i < whole.num_microbatches(); ++i)
      tokens.push_back(whole.microbatch(step, i)["tokens"]);
  for (int64_t step = 0; step < 12; ++step) {
    const TokenSource source(prefix_, {.sequence_length = 7});
    const BatchLoader resumed(source, {24, 4, 1, 2});
    harness::assert_same_bits(resumed.microbatch(step, 2)["tokens"], tokens[step * 3 + 2],
                              concat("step ", step));
  }
}

TEST_F(BatchLoaderTest, AResumedRunGoesOnWhereAnotherGlobalBatchStopped) {
  // Ten steps of 24 sequences, then steps of 8.
  const BatchLoader resumed(source_, {8, 2, 1, 2, 10, 240});
  EXPECT_EQ(resumed.step_sample(10), 240);
  EXPECT_EQ(resumed.step_sample(13), 264);
  EXPECT_EQ(resumed.first_sample(10, 1), 246);
  EXPECT_THROW(resumed.step_sample(9), InternalError);
}

TEST_F(BatchLoaderTest, AnUnevenBatchIsReadOnceWhateverTheLayout) {
  const BatchLoader alone(source_, {.global_batch = 7, .micro_batch = 7});
  for (const int data_size : {1, 2, 3, 5, 8}) {
    for (const int64_t micro_batch : {1, 2, 3, 7}) {
      for (const int64_t step : {0, 2}) {
        std::vector<at::Tensor> parts;
        for (int rank = 0; rank < data_size; ++rank) {
          const BatchLoader loader(source_, {.global_batch = 7,
                                             .micro_batch = micro_batch,
                                             .data_rank = rank,
                                             .data_size = data_size,
                                             .uneven = true});
          EXPECT_EQ(loader.step_sample(step), 7 * step);
          // As many on every rank, whether there is data for them or not.
          const int64_t unit = micro_batch * data_size;
          ASSERT_EQ(loader.num_microbatches(), (7 + unit - 1) / unit);
          for (int64_t i = 0; i < loader.num_microbatches(); ++i) {
            const Batch batch = loader.microbatch(step, i);
            ASSERT_EQ(batch["tokens"].size(1), 7);
            ASSERT_LE(batch["tokens"].size(0), micro_batch);
            EXPECT_EQ(batch["targets"].sizes(), batch["tokens"].sizes());
            EXPECT_EQ(batch.step, step);
            EXPECT_EQ(batch.first_sample, (rank * loader.num_microbatches() + i) * micro_batch);
            parts.push_back(batch["tokens"]);
          }
        }
        harness::assert_same_bits(at::cat(parts), alone.microbatch(step, 0)["tokens"], "step");
      }
    }
  }
}

TEST_F(BatchLoaderTest, SuggestsAGlobalBatchThatFits) {
  expect_config_error(
      [&] {
        BatchLoader(source_, {16, 3, 0, 2});
      },
      {"global_batch is 16", "3 * 2 = 6", "set it to 12 or 18"});
  expect_config_error([&] { BatchLoader(source_, {4, 4, 0, 2}); }, {"set it to 8"});
  expect_config_error([&] { BatchLoader(source_, {0, 1}); }, {"global_batch is 0"});
  expect_config_error([&] { BatchLoader(source_, {8, 0}); }, {"micro_batch 0"});
  expect_config_error([&] { BatchLoader(source_, {8, 1, 2, 2}); }, {"data rank 2 of 2"});
}

TEST_F(BatchLoaderTest, AMicrobatchThatDoesNotExistIsOurBug) {
  const BatchLoader loader(source_, {8, 4});
  EXPECT_THROW(loader.microbatch(0, 2), InternalError);
  EXPECT_THROW(loader.microbatch(-1, 0), InternalError);
}

// Sample i is a row of i + 1 numbers, or with another type, or another name.
TEST(BatchLoader, SamplesThatAreNotAlikeAreRefused) {
  class Uneven : public Source {
   public:
    explicit Uneven(int kind) : kind_(kind) {}
    int64_t size() const override { return 4; }
    NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
      if (index == 0 || kind_ == 0) return {{"x", at::zeros({2, 3})}};
      if (kind_ == 1) return {{"x", at::zeros({2, index})}};
      if (kind_ == 2) return {{"x", at::zeros({2, 3}, at::kLong)}};
      if (kind_ == 3) return {{"y", at::zeros({2, 3})}};
      if (kind_ == 4) return {{"x", at::zeros({2, 3})}, {"y", at::zeros({2, 3})}};
      return {};
    }

   private:
    int kind_;
  };
  const auto error = [](int kind) {
    const Uneven source(kind);
    const BatchLoader loader(source, {.global_batch = 2, .micro_batch = 2, .shuffle = false});
    return harness::message_of<ConfigError>([&] { loader.microbatch(0, 0); });
  };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(1),
            "a sample has \"x\" of [2, 1] Float and another of its batch \"x\" of [2, 3] Float; "
            "expected all samples alike");
  EXPECT_NE(error(2).find("\"x\" of [2, 3] Long"), std::string::npos);
  EXPECT_NE(error(3).find("a sample has \"y\""), std::string::npos);
  EXPECT_EQ(error(4),
            "a sample has 2 tensors and another of its batch 1; expected all samples alike");
  EXPECT_NE(error(5).find("a sample has 0 tensors"), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
