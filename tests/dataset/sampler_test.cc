#include "trireme/dataset/sampler.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

class SequenceSamplerTest : public testing::Test {
 protected:
  const IndexedFile& counting_file(int32_t num_tokens) {
    write_counting_file(prefix_, num_tokens);
    return file_.emplace(prefix_);
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
  std::optional<IndexedFile> file_;
};

TEST_F(SequenceSamplerTest, CutsTheStreamWithOneTokenOfOverlap) {
  const SequenceSampler sampler(counting_file(14), {.sequence_length = 4, .shuffle = false});
  ASSERT_EQ(sampler.num_sequences(), 3);
  std::vector<int64_t> out(5);
  sampler.sample(0, out);
  EXPECT_EQ(out, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  sampler.sample(2, out);
  EXPECT_EQ(out, (std::vector<int64_t>{8, 9, 10, 11, 12}));
  sampler.sample(4, out);  // the next epoch, in the same order
  EXPECT_EQ(out, (std::vector<int64_t>{4, 5, 6, 7, 8}));
}

TEST_F(SequenceSamplerTest, SaysWhichDocumentEachTokenIsOf) {
  write_token_file(prefix_, {{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9, 10}, {}});
  const IndexedFile& file = file_.emplace(prefix_);
  const SequenceSampler sampler(file, {.sequence_length = 3, .shuffle = false});
  std::vector<int64_t> out(3);
  const std::vector<std::vector<int64_t>> expected{{0, 0, 0}, {2, 3, 3}, {3, 3, 3}};
  for (size_t n = 0; n < expected.size(); ++n) {
    sampler.documents(static_cast<int64_t>(n), out);
    EXPECT_EQ(out, expected[n]);
  }
}

TEST_F(SequenceSamplerTest, UsesEveryTokenThatFitsAndNoneTwice) {
  for (const int32_t num_tokens : {5, 8, 9, 10, 12, 13}) {
    const SequenceSampler sampler(counting_file(num_tokens), {.sequence_length = 4});
    EXPECT_EQ(sampler.num_sequences(), (num_tokens - 1) / 4) << num_tokens;
  }
}

TEST_F(SequenceSamplerTest, EachEpochVisitsEverySequenceOnce) {
  for (const int32_t sequences : {1, 2, 3, 4, 5, 16, 17, 100, 1023}) {
    const SequenceSampler sampler(counting_file(sequences * 2 + 1),
                                  {.sequence_length = 2, .seed = 3});
    ASSERT_EQ(sampler.num_sequences(), sequences);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<int64_t> visited;
      for (int64_t i = 0; i < sequences; ++i)
        visited.insert(sampler.sequence(epoch * sequences + i));
      EXPECT_EQ(static_cast<int32_t>(visited.size()), sequences);
      EXPECT_EQ(*visited.begin(), 0);
      EXPECT_EQ(*visited.rbegin(), sequences - 1);
    }
  }
}

TEST_F(SequenceSamplerTest, OrderDependsOnSeedAndEpochAlone) {
  const IndexedFile& file = counting_file(401);
  const auto order = [&](uint64_t seed, int64_t epoch) {
    const SequenceSampler sampler(file, {.sequence_length = 4, .seed = seed});
    std::vector<int64_t> sequences;
    for (int64_t i = 0; i < 100; ++i) sequences.push_back(sampler.sequence(epoch * 100 + i));
    return sequences;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_FALSE(std::is_sorted(order(1, 0).begin(), order(1, 0).end()));
}

TEST_F(SequenceSamplerTest, NeedsOneSequence) {
  EXPECT_EQ(SequenceSampler(counting_file(9), {.sequence_length = 8}).num_sequences(), 1);
  expect_config_error([&] { SequenceSampler(counting_file(8), {.sequence_length = 8}); },
                      {prefix_ + ".bin has 8 tokens", "sequence_length + 1 = 9"});
  expect_config_error([&] { SequenceSampler(counting_file(8), {.sequence_length = 0}); },
                      {"sequence_length is 0"});
  write_token_file(prefix_, {});
  expect_config_error([&] { SequenceSampler(file_.emplace(prefix_), {.sequence_length = 1}); },
                      {"has 0 tokens"});
}

TEST_F(SequenceSamplerTest, NamesATokenOutsideTheVocabulary) {
  const SequenceSampler sampler(counting_file(20),
                                {.sequence_length = 4, .vocab_size = 10, .shuffle = false});
  std::vector<int64_t> out(5);
  sampler.sample(1, out);
  expect_config_error([&] { sampler.sample(2, out); },
                      {prefix_ + ".bin", "token 10 at position 10", "vocabulary of 10"});
}

}  // namespace
}  // namespace trireme::dataset
