#include "trireme/dataset/token_source.h"

#include <algorithm>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

class TokenSourceTest : public testing::Test {
 protected:
  TokenSource counting(int32_t num_tokens, TokenOptions options) {
    write_counting_file(prefix_, num_tokens);
    return TokenSource(prefix_, options);
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

TEST_F(TokenSourceTest, CutsTheStreamWithOneTokenOfOverlap) {
  const TokenSource source = counting(14, {.sequence_length = 4});
  ASSERT_EQ(source.size(), 3);
  std::vector<int64_t> out(5);
  source.read_tokens(0, out);
  EXPECT_EQ(out, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  source.read_tokens(2, out);
  EXPECT_EQ(out, (std::vector<int64_t>{8, 9, 10, 11, 12}));
  EXPECT_THROW(source.read_tokens(3, out), InternalError);
}

TEST_F(TokenSourceTest, SaysWhichDocumentEachTokenIsOf) {
  write_token_file(prefix_, {{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9, 10}, {}});
  const TokenSource source(prefix_, {.sequence_length = 3, .documents = true});
  std::vector<int64_t> out(3);
  const std::vector<std::vector<int64_t>> expected{{0, 0, 0}, {2, 3, 3}, {3, 3, 3}};
  for (size_t n = 0; n < expected.size(); ++n) {
    source.read_documents(static_cast<int64_t>(n), out);
    EXPECT_EQ(out, expected[n]);
  }
}

TEST_F(TokenSourceTest, UsesEveryTokenThatFitsAndNoneTwice) {
  for (const int32_t num_tokens : {5, 8, 9, 10, 12, 13}) {
    EXPECT_EQ(counting(num_tokens, {.sequence_length = 4}).size(), (num_tokens - 1) / 4)
        << num_tokens;
  }
}

TEST_F(TokenSourceTest, NeedsOneSequence) {
  EXPECT_EQ(counting(9, {.sequence_length = 8}).size(), 1);
  expect_config_error([&] { counting(8, {.sequence_length = 8}); },
                      {prefix_ + ".bin has 8 tokens", "sequence_length + 1 = 9"});
  expect_config_error([&] { counting(8, {.sequence_length = 0}); }, {"sequence_length is 0"});
  write_token_file(prefix_, {});
  expect_config_error([&] { TokenSource(prefix_, {.sequence_length = 1}); }, {"has 0 tokens"});
}

TEST_F(TokenSourceTest, NamesATokenOutsideTheVocabulary) {
  const TokenSource source = counting(20, {.sequence_length = 4, .vocab_size = 10});
  std::vector<int64_t> out(5);
  source.read_tokens(1, out);
  expect_config_error([&] { source.read_tokens(2, out); },
                      {prefix_ + ".bin", "token 10 at position 10", "vocabulary of 10"});
}

}  // namespace
}  // namespace trireme::dataset
