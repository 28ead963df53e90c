#include "trireme/dataset/samples/blended_source.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/harness/tensors.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

// Three files whose tokens say where they come from: 0 to 699, 1,000 to 1,299, 2,000 to 2,049.
class BlendedSourceTest : public testing::Test {
 protected:
  static constexpr int64_t kLength = 5;
  static constexpr uint64_t kSeed = 7;

  BlendedSourceTest() {
    for (const auto& [first, size] : {std::pair{0, 700}, {1000, 300}, {2000, 50}}) {
      std::vector<int32_t> tokens(static_cast<size_t>(size) + 1);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int32_t>(i);
      const std::string prefix = folder_ / std::to_string(first);
      write_token_file(prefix, {tokens}, 3000);
      files_.push_back(
          std::make_shared<const TokenSource>(prefix, TokenOptions{.sequence_length = kLength}));
    }
  }

  BlendedSource blend(const std::vector<int64_t>& weights = {5, 3, 2}) const {
    std::vector<BlendedSource::Part> parts;
    for (size_t i = 0; i < weights.size(); ++i) {
      parts.push_back({"s" + std::to_string(i), "", weights[i], files_[i]});
    }
    return BlendedSource(std::move(parts), /*repeats=*/true);
  }
  static BatchOptions options(int rank, int num_ranks, int64_t batch = 24) {
    return {.global_batch = batch,
            .micro_batch = 1,
            .data_rank = rank,
            .data_size = num_ranks,
            .seed = kSeed};
  }
  // The first tokens of the samples of a step, over all ranks.
  static std::vector<int64_t> firsts(const Source& source, int64_t step, int num_ranks,
                                     bool in_turn = false) {
    std::map<int64_t, int64_t> by_place;
    for (int rank = 0; rank < num_ranks; ++rank) {
      BatchOptions own = options(rank, num_ranks);
      own.in_turn = in_turn;
      const BatchLoader loader(source, own);
      for (int64_t i = 0; i < loader.num_microbatches(step); ++i) {
        const Batch batch = loader.microbatch(step, i);
        by_place[batch.first_sample] = batch["tokens"][0][0].item<int64_t>();
      }
    }
    std::vector<int64_t> found;
    for (const auto& [place, first] : by_place) found.push_back(first);
    return found;
  }

  TemporaryFolder folder_;
  std::vector<std::shared_ptr<const TokenSource>> files_;
};

TEST_F(BlendedSourceTest, HasTheSamplesOfItsPartsOneAfterTheOther) {
  const BlendedSource source = blend();
  EXPECT_EQ(source.size(), 140 + 60 + 10);
  int64_t index = 0;
  for (const auto& file : files_) {
    for (int64_t own = 0; own < file->size(); ++own, ++index) {
      const at::Tensor expected = find_tensor(file->get(own, std::nullopt), "targets");
      harness::assert_same_bits(find_tensor(source.get(index, std::nullopt), "targets"), expected,
                                "a sample");
    }
  }
  // An evaluation reads them so.
  BatchOptions evaluation = options(0, 1, 210);
  evaluation.shuffle = false;
  const Batch last = BatchLoader(source, evaluation).microbatch(0, 209);
  EXPECT_EQ(last["tokens"][0][0].item<int64_t>(), 2045);
}

// Each source comes in the order that it has alone, through all its epochs.
TEST_F(BlendedSourceTest, TakesEachSourceInItsOwnOrder) {
  const BlendedSource source = blend();
  std::vector<std::vector<int64_t>> found(files_.size());
  for (int64_t step = 0; step < 50; ++step) {
    for (const int64_t first : firsts(source, step, 1)) {
      found[static_cast<size_t>(first / 1000)].push_back(first % 1000 / kLength);
    }
  }
  EXPECT_EQ(found[0].size(), 600U);
  EXPECT_EQ(found[1].size(), 360U);
  EXPECT_EQ(found[2].size(), 240U);  // 24 epochs
  for (size_t part = 0; part < files_.size(); ++part) {
    const SampleOrder alone(files_[part]->size(), kSeed, /*shuffle=*/true);
    for (size_t i = 0; i < found[part].size(); ++i) {
      ASSERT_EQ(found[part][i], alone.index(static_cast<int64_t>(i))) << part << " " << i;
    }
  }
}

TEST_F(BlendedSourceTest, IsTheSameOnAnyNumberOfRanks) {
  const BlendedSource source = blend();
  for (const int64_t step : {0, 1, 7, 1'000'000}) {
    const std::vector<int64_t> expected = firsts(source, step, 1);
    EXPECT_EQ(expected.size(), 24U);
    for (const int num_ranks : {2, 3, 8}) {
      EXPECT_EQ(firsts(source, step, num_ranks), expected);
      EXPECT_EQ(firsts(source, step, num_ranks, /*in_turn=*/true), expected);
    }
  }
}

TEST_F(BlendedSourceTest, AResumeGoesOnInTheMiddle) {
  const BlendedSource source = blend();
  const BatchLoader whole(source, options(0, 1));
  BatchOptions resumed = options(0, 1, /*batch=*/12);  // with another batch
  resumed.first_step = 5;
  resumed.first_sample = whole.step_sample(5);
  BatchReader reader(source, resumed, {.num_workers = 2, .num_steps = 9});
  for (int64_t n = 0; n < 48; ++n) {
    const Batch expected = whole.microbatch(5 + n / 24, n % 24);
    const Batch found = reader.read(5 + n / 12, n % 12);
    harness::assert_same_bits(found["tokens"], expected["tokens"], "a sample");
    harness::assert_same_bits(found["targets"], expected["targets"], "its targets");
  }
}

// Masks and spans are drawn from the sample's number in the run, so no two samples share them.
TEST_F(BlendedSourceTest, ASourceOfTheWholeShareReadsAsItself) {
  std::vector<BlendedSource::Part> parts = {{"only", "", 1, files_[1]}};
  const BlendedSource alone(std::move(parts), true);
  for (const int64_t step : {0, 3, 11}) {
    EXPECT_EQ(firsts(alone, step, 2), firsts(*files_[1], step, 2));
  }
  const BatchLoader blended(alone, options(0, 1)), plain(*files_[1], options(0, 1));
  EXPECT_EQ(SampleOrder(alone, kSeed, true).augmentation(77).value,
            SampleOrder(*files_[1], kSeed, true).augmentation(77).value);
  EXPECT_EQ(blended.step_sample(9), plain.step_sample(9));
}

// Conversations, of which the answers are to be learnt, and text.
TEST_F(BlendedSourceTest, TokensWithoutALossMaskAllCount) {
  const std::string prefix = folder_ / "chat";
  {
    TokenFile chat(prefix, 3000, {.mask = true});
    const std::vector<int32_t> tokens(61, 5);
    std::vector<int32_t> mask(61);
    for (size_t i = 0; i < mask.size(); i += 2) mask[i] = kLearntToken;
    chat.add_document(tokens, mask);
    chat.complete();
    chat.publish();
  }
  const auto masked =
      std::make_shared<const TokenSource>(prefix, TokenOptions{.sequence_length = kLength});
  std::vector<BlendedSource::Part> parts = {{"chat", "", 1, masked}, {"text", "", 1, files_[0]}};
  const BlendedSource source(std::move(parts), true);
  const at::Tensor targets = BatchLoader(source, {24, 24}).microbatch(0, 0)["targets"];
  std::map<int64_t, int64_t> rows;  // by their number of targets
  for (int64_t b = 0; b < 24; ++b) ++rows[targets[b].ne(kNoTarget).sum().item<int64_t>()];
  EXPECT_EQ(rows[kLength], 12);
  EXPECT_EQ(rows[2] + rows[3], 12);
}

TEST_F(BlendedSourceTest, HasNoLastBatchOfAnEpoch) {
  const BlendedSource source = blend();
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop}) {
    BatchOptions own = options(0, 1);
    own.last_batch = last;
    EXPECT_THROW(BatchLoader(source, own), InternalError);
  }
  std::vector<BlendedSource::Part> nested = {
      {"a", "", 1, std::make_shared<const BlendedSource>(blend())}};
  EXPECT_THROW(BlendedSource(std::move(nested), true), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
