#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/dataset/source.h"
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
      for (int64_t i = 0; i < loader.num_microbatches(0); ++i)
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

TEST(BatchSizes, GrowEvenlyAndAddUp) {
  for (const BatchSizes& sizes :
       {BatchSizes{12}, BatchSizes{16, 4, 6}, BatchSizes{16, 4, 3}, BatchSizes{16, 4, 2},
        BatchSizes{96, 3, 7}, BatchSizes{35, 7, 1}, BatchSizes{5, 5, 4}, BatchSizes{64, 2, 1000}}) {
    int64_t before = 0, last = 0;
    for (int64_t step = 0; step < sizes.ramp_steps + 5; ++step) {
      EXPECT_EQ(sizes.before(step), before) << step;
      EXPECT_GE(sizes.of(step), last);
      if (sizes.first > 0) {
        EXPECT_EQ(sizes.of(step) % sizes.first, 0);
      }
      before += last = sizes.of(step);
    }
    EXPECT_EQ(sizes.of(0), sizes.first > 0 ? sizes.first : sizes.last);
    EXPECT_EQ(last, sizes.last);
  }
  const BatchSizes even{16, 4, 6};
  std::vector<int64_t> found;
  for (int64_t step = 0; step < 8; ++step) found.push_back(even.of(step));
  EXPECT_EQ(found, (std::vector<int64_t>{4, 4, 8, 8, 12, 12, 16, 16}));
  // The largest that a config allows.
  const BatchSizes large{10'000'000, 1, 1'000'000'000};
  EXPECT_EQ(large.before(2'000'000'000) - large.before(1'999'999'999), 10'000'000);
  EXPECT_NEAR(static_cast<double>(large.before(1'000'000'000)), 5e15, 1e9);
}

TEST_F(BatchLoaderTest, ARampReadsTheSamplesOfConstantBatchesOneAfterTheOther) {
  for (const int data_size : {1, 2}) {
    for (const bool in_turn : {false, true}) {
      for (int rank = 0; rank < data_size; ++rank) {
        BatchOptions options{.global_batch = 16,
                             .micro_batch = 2,
                             .data_rank = rank,
                             .data_size = data_size,
                             .in_turn = in_turn,
                             .first_batch = 4,
                             .ramp_steps = 6};
        const BatchLoader ramp(source_, options);
        BatchReader reader(source_, options, {.num_workers = 2, .num_steps = 8});
        options.first_step = 3;  // a resume
        options.first_sample = 4 + 4 + 8;
        const BatchLoader resumed(source_, options);
        int64_t sample = 0;
        for (int64_t step = 0; step < 8; ++step) {
          const int64_t batch = BatchSizes{16, 4, 6}.of(step);
          const BatchLoader constant(source_, {.global_batch = batch,
                                               .micro_batch = 2,
                                               .data_rank = rank,
                                               .data_size = data_size,
                                               .first_step = step,
                                               .first_sample = sample,
                                               .in_turn = in_turn});
          EXPECT_EQ(ramp.step_sample(step), sample);
          EXPECT_EQ(ramp.step_size(step), batch);
          ASSERT_EQ(ramp.num_microbatches(step), batch / 2 / data_size);
          for (int64_t i = 0; i < ramp.num_microbatches(step); ++i) {
            const Batch expected = constant.microbatch(step, i);
            harness::assert_same_bits(ramp.microbatch(step, i)["tokens"], expected["tokens"], "a");
            harness::assert_same_bits(reader.read(step, i)["tokens"], expected["tokens"], "read");
            EXPECT_EQ(ramp.microbatch(step, i).first_sample, expected.first_sample);
            EXPECT_EQ(ramp.microbatch(step, i).step_size, batch);
            if (step < 3) continue;
            harness::assert_same_bits(resumed.microbatch(step, i)["tokens"], expected["tokens"],
                                      "resumed");
          }
          sample += batch;
        }
      }
    }
  }
}

TEST_F(BatchLoaderTest, HasDocumentsWhenAsked) {
  EXPECT_FALSE(BatchLoader(source_, {8, 4}).microbatch(0, 0)["documents"].defined());
  write_token_file(folder_ / "b", {{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}});
  const TokenSource source(folder_ / "b", {.sequence_length = 4, .documents = true});
  const BatchLoader loader(source, {.global_batch = 3, .micro_batch = 3, .shuffle = false});
  const Batch batch = loader.microbatch(0, 0);
  EXPECT_TRUE(batch["documents"].eq(batch["tokens"].ge(5)).all().item<bool>());
}

// In turn: microbatch j of all ranks comes before microbatch j + 1 of any.
TEST_F(BatchLoaderTest, RanksInTurnReadTheSamplesOfOneRank) {
  constexpr int kRanks = 3;
  const BatchLoader all(source_, {.global_batch = 10, .micro_batch = 10});
  const BatchOptions options{
      .global_batch = 10, .micro_batch = 2, .data_size = kRanks, .uneven = true, .in_turn = true};
  std::vector<at::Tensor> parts;
  for (int64_t j = 0; j < 2; ++j) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchOptions mine = options;
      mine.data_rank = rank;
      const BatchLoader loader(source_, mine);
      ASSERT_EQ(loader.num_microbatches(0), 2);
      const Batch batch = loader.microbatch(5, j);
      EXPECT_EQ(batch.size(), j == 1 && rank == 2 ? 0 : 2);
      EXPECT_EQ(batch.first_sample, 2 * (j * kRanks + rank));
      parts.push_back(batch["tokens"]);
    }
  }
  harness::assert_same_bits(at::cat(parts), all.microbatch(5, 0)["tokens"], "tokens");
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
  ASSERT_EQ(loader.num_microbatches(0), 4);
  EXPECT_EQ(loader.first_sample(0, 0), 16);
  EXPECT_EQ(loader.first_sample(0, 3), 22);
  EXPECT_EQ(loader.first_sample(10, 1), 258);
}

TEST_F(BatchLoaderTest, ResumingAtAnyStepReadsTheSame) {
  const BatchLoader whole(source_, {24, 4, 1, 2});
  std::vector<at::Tensor> tokens;
  for (int64_t step = 0; step < 12; ++step)
    for (int64_t i = 0; i < whole.num_microbatches(0); ++i)
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
          ASSERT_EQ(loader.num_microbatches(0), (7 + unit - 1) / unit);
          for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
            const Batch batch = loader.microbatch(step, i);
            ASSERT_EQ(batch["tokens"].size(1), 7);
            ASSERT_LE(batch["tokens"].size(0), micro_batch);
            EXPECT_EQ(batch["targets"].sizes(), batch["tokens"].sizes());
            EXPECT_EQ(batch.step, step);
            EXPECT_EQ(batch.first_sample, (rank * loader.num_microbatches(0) + i) * micro_batch);
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

// Sample i is the number i.
class SomeBad : public Source {
 public:
  explicit SomeBad(int64_t size, std::vector<int64_t> bad = {})
      : size_(size), bad_(std::move(bad)) {}
  int64_t size() const override { return size_; }
  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    TRIREME_CHECK(!std::ranges::count(bad_, index), "sample ", index, " is bad");
    return {{"x", at::scalar_tensor(index, at::kLong)}};
  }

 private:
  int64_t size_;
  std::vector<int64_t> bad_;
};

std::vector<int64_t> numbers_of(const Batch& batch) {
  const at::Tensor x = batch["x"];
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

// A step over all ranks.
std::vector<int64_t> step_numbers(const Source& source, BatchOptions options, int64_t step) {
  std::vector<int64_t> numbers;
  for (int rank = 0; rank < options.data_size; ++rank) {
    options.data_rank = rank;
    const BatchLoader loader(source, options);
    for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
      const std::vector<int64_t> mine = numbers_of(loader.microbatch(step, i));
      numbers.insert(numbers.end(), mine.begin(), mine.end());
    }
  }
  return numbers;
}

TEST(BatchLoader, KeepEndsAnEpochWithASmallerBatch) {
  const SomeBad source(10);
  for (const auto& [data_size, micro_batch] : {std::pair{1, 4}, {1, 1}, {2, 2}, {4, 1}}) {
    const BatchOptions options{.global_batch = 4,
                               .micro_batch = micro_batch,
                               .data_size = data_size,
                               .shuffle = false,
                               .last_batch = LastBatch::kKeep};
    using Values = std::vector<int64_t>;
    for (const int64_t epoch : {0, 1, 5}) {
      EXPECT_EQ(step_numbers(source, options, 3 * epoch), (Values{0, 1, 2, 3}));
      EXPECT_EQ(step_numbers(source, options, 3 * epoch + 1), (Values{4, 5, 6, 7}));
      EXPECT_EQ(step_numbers(source, options, 3 * epoch + 2), (Values{8, 9}));
    }
    const BatchLoader loader(source, options);
    EXPECT_EQ(loader.step_size(2), 2);
    EXPECT_EQ(loader.step_size(3), 4);
    EXPECT_EQ(loader.step_sample(3), 10);
  }
}

TEST(BatchLoader, DropLeavesTheRestOfAnEpochOut) {
  const SomeBad source(10);
  const BatchOptions options{.global_batch = 4,
                             .micro_batch = 2,
                             .data_size = 2,
                             .shuffle = false,
                             .last_batch = LastBatch::kDrop};
  using Values = std::vector<int64_t>;
  EXPECT_EQ(step_numbers(source, options, 0), (Values{0, 1, 2, 3}));
  EXPECT_EQ(step_numbers(source, options, 1), (Values{4, 5, 6, 7}));
  EXPECT_EQ(step_numbers(source, options, 2), (Values{0, 1, 2, 3}));
  EXPECT_EQ(BatchLoader(source, options).step_sample(2), 10);
  EXPECT_EQ(BatchLoader(source, options).step_size(1), 4);
  expect_config_error(
      [&] {
        BatchLoader(source,
                    {.global_batch = 11, .micro_batch = 11, .last_batch = LastBatch::kDrop});
      },
      {"global_batch is 11 and the data has 10 samples"});
}

// Whatever is left of the data, the rest of the run is that of a run that was not interrupted.
TEST(BatchLoader, AResumeGoesOnWithinTheEpoch) {
  const SomeBad source(10);
  for (const LastBatch last_batch : {LastBatch::kFill, LastBatch::kKeep, LastBatch::kDrop}) {
    BatchOptions options{.global_batch = 3, .micro_batch = 3, .last_batch = last_batch};
    const BatchLoader whole(source, options);
    for (int64_t first = 0; first < 12; ++first) {
      options.first_step = first;
      options.first_sample = whole.step_sample(first);
      const BatchLoader resumed(source, options);
      for (int64_t step = first; step < first + 12; ++step) {
        ASSERT_EQ(resumed.step_sample(step), whole.step_sample(step)) << first << " " << step;
        ASSERT_EQ(numbers_of(resumed.microbatch(step, 0)), numbers_of(whole.microbatch(step, 0)));
      }
    }
  }
}

// By counting, whatever a run has done before.
TEST(BatchLoader, FindsTheStepThatEndsEpochs) {
  for (const int64_t size : {1, 7, 10, 12}) {
    const SomeBad source(size);
    for (const LastBatch last_batch : {LastBatch::kFill, LastBatch::kKeep, LastBatch::kDrop}) {
      for (const int64_t batch : {1, 3, 4}) {
        if (last_batch == LastBatch::kDrop && batch > size) continue;
        BatchOptions options{.global_batch = batch, .micro_batch = 1, .last_batch = last_batch};
        const BatchLoader whole(source, options);
        for (const int64_t begun : {0, 2, 5}) {
          options.first_step = begun;
          options.first_sample = whole.step_sample(begun);
          const BatchLoader loader(source, options);
          for (int64_t sample = 1; sample <= 3 * size; ++sample) {
            int64_t step = begun;
            while (loader.step_sample(step) < sample) ++step;
            EXPECT_EQ(loader.first_step_from(sample, 1000), step) << size << " " << batch;
            EXPECT_EQ(loader.first_step_from(sample, step), step);
            if (step > begun) {
              EXPECT_FALSE(loader.first_step_from(sample, step - 1));
            }
          }
        }
      }
    }
  }
}

TEST(BatchLoader, AnotherBatchFromTheMiddleOfAnEpochFinishesItFirst) {
  const SomeBad source(10);
  BatchOptions options{.global_batch = 4,
                       .micro_batch = 4,
                       .first_step = 1,
                       .first_sample = 17,
                       .shuffle = false,
                       .last_batch = LastBatch::kKeep};
  EXPECT_EQ(step_numbers(source, options, 1), (std::vector<int64_t>{7, 8, 9}));
  EXPECT_EQ(step_numbers(source, options, 2), (std::vector<int64_t>{0, 1, 2, 3}));
  options.last_batch = LastBatch::kDrop;
  EXPECT_EQ(BatchLoader(source, options).step_sample(1), 20);
  EXPECT_EQ(step_numbers(source, options, 1), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(BatchLoader, ABadSampleIsReplacedByTheNextOfTheSource) {
  const SomeBad source(10, {3, 4, 9});
  BatchOptions options{.global_batch = 10, .micro_batch = 10, .shuffle = false, .most_replaced = 2};
  const Batch batch = BatchLoader(source, options).microbatch(0, 0);
  EXPECT_EQ(numbers_of(batch), (std::vector<int64_t>{0, 1, 2, 5, 5, 5, 6, 7, 8, 0}));
  EXPECT_EQ(batch.bad_samples, (std::vector<std::string>{"sample 3 is bad", "sample 4 is bad",
                                                         "sample 4 is bad", "sample 9 is bad"}));
  options.most_replaced = 1;
  expect_config_error([&] { BatchLoader(source, options).microbatch(0, 0); },
                      {"2 samples in a row cannot be read; the last: sample 4 is bad"});
  options.most_replaced = 0;
  expect_config_error([&] { BatchLoader(source, options).microbatch(0, 0); }, {"sample 3 is bad"});
}

// An empty microbatch reads a sample for its shapes, which is not counted.
TEST(BatchLoader, BadSamplesAreCountedOnceInEveryLayout) {
  const SomeBad source(12, {0, 1, 5, 8});
  for (const int data_size : {1, 2, 3, 5}) {
    for (const int64_t micro_batch : {1, 2, 7}) {
      size_t bad = 0;
      for (int rank = 0; rank < data_size; ++rank) {
        const BatchLoader loader(source, {.global_batch = 7,
                                          .micro_batch = micro_batch,
                                          .data_rank = rank,
                                          .data_size = data_size,
                                          .uneven = true,
                                          .shuffle = false,
                                          .most_replaced = 10});
        for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
          bad += loader.microbatch(0, i).bad_samples.size();
        }
      }
      // 0 and 1 for the place of 0, 1 for its own, 5.
      EXPECT_EQ(bad, 4U) << data_size << " " << micro_batch;
    }
  }
}

}  // namespace
}  // namespace trireme::dataset
