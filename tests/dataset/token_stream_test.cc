#include "trireme/dataset/token_stream.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/dataset/data.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

class TokenStreamTest : public testing::Test {
 protected:
  // Three documents; the second token of each is to be learnt, and the last one of the last.
  void write() const {
    TokenFile file(prefix_, 100, {.mask = true});
    file.add_document(std::vector<int32_t>{10, 11, 12}, std::vector<int32_t>{0, 1, 0});
    file.add_document(std::vector<int32_t>{20, 21}, std::vector<int32_t>{0, 1});
    file.add_document(std::vector<int32_t>{30, 31, 32}, std::vector<int32_t>{0, 1, 1});
    file.complete();
    file.publish();
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto* begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

TEST_F(TokenStreamTest, TargetsThatTheMaskLeavesOutAreInNoLoss) {
  write();
  const TokenSource source(prefix_, {.sequence_length = 3});
  constexpr int64_t none = kNoTarget;
  const NamedTensors first = source.get(0, {}), second = source.get(1, {});
  EXPECT_EQ(numbers(find_tensor(first, "tokens")), (std::vector<int64_t>{10, 11, 12}));
  EXPECT_EQ(numbers(find_tensor(first, "targets")), (std::vector<int64_t>{11, none, none}));
  EXPECT_EQ(numbers(find_tensor(second, "targets")), (std::vector<int64_t>{21, none, 31}));
}

TEST_F(TokenStreamTest, WithoutAMaskEveryTokenIsATarget) {
  write_token_file(prefix_, {{1, 2, 3, 4}});
  EXPECT_EQ(TokenStream(prefix_, 0).mask(), nullptr);
  const NamedTensors sample = TokenSource(prefix_, {.sequence_length = 3}).get(0, {});
  EXPECT_EQ(numbers(find_tensor(sample, "targets")), (std::vector<int64_t>{2, 3, 4}));
}

TEST_F(TokenStreamTest, AMaskOfOtherDocumentsIsRefused) {
  write();
  // The same number of tokens, cut elsewhere.
  write_token_file(prefix_, {{10, 11}, {12, 20, 21}, {30, 31, 32}}, 100);
  expect_config_error(
      [&] {
        TokenStream{prefix_, 0};
      },
      {prefix_ + ".loss.idx has 3 documents of 8 tokens", "the same sizes"});
  write_token_file(prefix_, {{10, 11, 12}}, 100);
  expect_config_error([&] { TokenStream{prefix_, 0}; }, {"has 3 documents of 8 tokens"});
}

TEST_F(TokenStreamTest, HalfAMaskIsAnErrorAndNotNone) {
  write();
  std::filesystem::remove(bin_path(loss_prefix(prefix_)));
  expect_config_error([&] { TokenStream{prefix_, 0}; }, {".loss.bin does not exist"});
  write();
  std::filesystem::remove(idx_path(loss_prefix(prefix_)));
  expect_config_error([&] { TokenStream{prefix_, 0}; }, {".loss.idx does not exist"});
}

TEST_F(TokenStreamTest, AMaskOfWiderNumbersOrOtherValuesIsRefused) {
  write();
  write_token_file(loss_prefix(prefix_), {{0, 1, 0}, {0, 1}, {0, 1, 1}}, 2);
  expect_config_error([&] { TokenStream{prefix_, 0}; }, {"tokens of 2 bytes", "a loss mask"});
  write();
  write_text(bin_path(loss_prefix(prefix_)), std::string_view("\0\1\0\0\1\0\7\1", 8));
  const TokenSource source(prefix_, {.sequence_length = 3});
  source.get(0, {});
  expect_config_error([&] { source.get(1, {}); }, {".loss.bin: byte 7 at position 6"});
}

TEST_F(TokenStreamTest, TargetsMayBeTheTokensThemselves) {
  write();
  const TokenSource source(prefix_, {.sequence_length = 3, .ahead = 0});
  constexpr int64_t none = kNoTarget;
  EXPECT_EQ(numbers(find_tensor(source.get(0, {}), "targets")),
            (std::vector<int64_t>{none, 11, none}));
  EXPECT_EQ(numbers(find_tensor(source.get(1, {}), "targets")),
            (std::vector<int64_t>{none, 21, none}));
}

class MaskedSamplesTest : public TokenStreamTest {
 protected:
  // 20 sequences of 500 tokens, of 50 different ones.
  MaskedSamplesTest() {
    std::vector<int32_t> document;
    for (int32_t i = 0; i < 10001; ++i) document.push_back(i * 7 % 50);
    write_token_file(prefix_, {document});
  }
  MaskedSamples masked(double share) const {
    return {std::make_shared<const TokenSource>(
                prefix_, TokenOptions{.sequence_length = 500, .vocab_size = 60, .ahead = 0}),
            {.share = share, .mask_token = 59, .vocab_size = 60}};
  }
};

TEST_F(MaskedSamplesTest, TheTargetsAreTheSourcesTokensWhereTheWordsSay) {
  const MaskedSamples samples = masked(0.15);
  const TokenSource plain(prefix_, {.sequence_length = 500});
  const RandomKey key = random_key(3, "any");
  const NamedTensors sample = samples.get(2, key);
  const auto tokens = numbers(find_tensor(sample, "tokens")),
             targets = numbers(find_tensor(sample, "targets")),
             source = numbers(find_tensor(plain.get(2, {}), "tokens"));
  constexpr double kWords = 4294967296.0;
  for (size_t i = 0; i < 500; ++i) {
    const auto words = random_bits(key, i);
    const bool is_chosen = words[0] / kWords < 0.15;
    EXPECT_EQ(targets[i], is_chosen ? source[i] : kNoTarget) << i;
    const double kind = words[1] / kWords;
    const uint64_t wide = words[2] + (uint64_t{words[3]} << 32);
    const int64_t expected = !is_chosen || kind >= 0.9 ? source[i]
                             : kind < 0.8              ? 59
                                                       : static_cast<int64_t>(wide % 60);
    EXPECT_EQ(tokens[i], expected) << i;
  }
}

// Of 10,000 tokens: four standard deviations around each share.
TEST_F(MaskedSamplesTest, TheSharesAreThoseOfThePaper) {
  const MaskedSamples samples = masked(0.15);
  const TokenSource plain(prefix_, {.sequence_length = 500});
  double chosen = 0, hidden = 0, changed = 0;
  for (int64_t index = 0; index < samples.size(); ++index) {
    const NamedTensors sample = samples.get(index, random_key(1, std::to_string(index)));
    const at::Tensor tokens = find_tensor(sample, "tokens"),
                     targets = find_tensor(sample, "targets"),
                     source = find_tensor(plain.get(index, {}), "tokens");
    const auto count = [](const at::Tensor& is) { return is.sum().item<double>(); };
    chosen += count(targets.ne(kNoTarget));
    hidden += count(tokens.eq(59));
    changed += count(tokens.ne(source).logical_and(tokens.ne(59)));
    EXPECT_EQ(count(tokens.ne(source).logical_and(targets.eq(kNoTarget))), 0);
  }
  EXPECT_NEAR(chosen, 1500, 4 * std::sqrt(1500 * 0.85));
  EXPECT_NEAR(hidden, 0.8 * chosen, 4 * std::sqrt(chosen * 0.16) + 0.01 * chosen);
  EXPECT_NEAR(changed, 0.1 * chosen * 59 / 60, 4 * std::sqrt(chosen * 0.09));
}

TEST_F(MaskedSamplesTest, EpochsHideOtherTokensAndEvaluationsTheSame) {
  const MaskedSamples samples = masked(0.15);
  const auto targets = [&](std::optional<RandomKey> key) {
    return numbers(find_tensor(samples.get(0, key), "targets"));
  };
  EXPECT_NE(targets(random_key(1, "0")), targets(random_key(1, "20")));
  EXPECT_EQ(targets({}), targets({}));
  EXPECT_EQ(targets({}), targets(random_key(0, "data/masks/0")));
  EXPECT_EQ(samples.description(), "15 % masked");
  const auto all = numbers(find_tensor(masked(1).get(0, {}), "targets"));
  EXPECT_EQ(std::ranges::count(all, kNoTarget), 0);
}

TEST_F(MaskedSamplesTest, PaddingAndWhatIsNotToBeLearntIsNeverChosen) {
  write();
  const auto packed = std::make_shared<const PackedSource>(
      TokenStream(prefix_, 100), TokenOptions{.sequence_length = 4, .vocab_size = 100, .ahead = 0});
  ASSERT_EQ(packed->size(), 3);
  const MaskedSamples samples(packed, {.share = 1, .mask_token = 99, .vocab_size = 100});
  std::multiset<int64_t> targets;
  for (int64_t index = 0; index < 3; ++index) {
    const NamedTensors sample = samples.get(index, random_key(1, "x"));
    for (const int64_t target : numbers(find_tensor(sample, "targets"))) targets.insert(target);
  }
  targets.erase(kNoTarget);
  EXPECT_EQ(targets, (std::multiset<int64_t>{11, 21, 31, 32}));
}

}  // namespace
}  // namespace trireme::dataset
