#include "trireme/dataset/conversation/pair_source.h"

#include "tests/dataset/data.h"
#include "trireme/dataset/token_files.h"

namespace trireme::dataset {
namespace {

using Numbers = std::vector<int64_t>;
using Tokens = std::vector<int32_t>;

constexpr int64_t kNone = kNoTarget;

class PairSourceTest : public testing::Test {
 protected:
  void write(const std::vector<std::pair<Tokens, Tokens>>& documents) const {
    TokenFile file(prefix_, 100, {.mask = true});
    for (const auto& [tokens, mask] : documents) file.add_document(tokens, mask);
    file.complete();
    file.publish();
  }
  PairSource source(int64_t T) const {
    return {TokenStream(prefix_, 100), {.sequence_length = T, .documents = true}};
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

Numbers numbers_of(const NamedTensors& sample, std::string_view name) {
  const at::Tensor tensor = find_tensor(sample, name);
  const auto* begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

TEST_F(PairSourceTest, ASampleIsAPairWithTheAnswersAsTargets) {
  write({{{1, 2, 3}, {0, 0, 1}}, {{1, 2, 4, 5}, {0, 0, 2, 2}}, {{6, 7}, {0, 1}}, {{6, 8}, {0, 2}}});
  ASSERT_TRUE(TokenStream(prefix_, 0).has_pairs());
  const PairSource pairs = source(4);
  ASSERT_EQ(pairs.size(), 2);
  const NamedTensors sample = pairs.get(0, {});
  EXPECT_EQ(find_tensor(sample, "tokens").sizes(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(numbers_of(sample, "tokens"), (Numbers{1, 2, 0, 0, 1, 2, 4, 0}));
  EXPECT_EQ(numbers_of(sample, "targets"), (Numbers{kNone, 3, kNone, kNone, kNone, 4, 5, kNone}));
  EXPECT_EQ(numbers_of(sample, "documents"), (Numbers{0, 0, -1, -1, 1, 1, 1, -1}));
  EXPECT_EQ(numbers_of(pairs.get(1, {}), "targets"),
            (Numbers{7, kNone, kNone, kNone, 8, kNone, kNone, kNone}));
  EXPECT_EQ(pairs.description(), "chosen and rejected, filled 43.8 %");
}

TEST_F(PairSourceTest, LongAnswersAreCutAndPairsWithoutOneLeftOut) {
  write({{{1, 2, 3, 4}, {0, 0, 0, 1}},
         {{1, 2}, {0, 2}},
         {{5, 6, 7, 8}, {0, 1, 1, 1}},
         {{5, 9}, {0, 2}}});
  const PairSource pairs = source(2);
  ASSERT_EQ(pairs.size(), 1);
  EXPECT_EQ(pairs.report().cut, 1);
  EXPECT_EQ(pairs.report().left_out, 1);
  EXPECT_EQ(numbers_of(pairs.get(0, {}), "targets"), (Numbers{6, 7, 9, kNone}));
  EXPECT_EQ(pairs.description(),
            "chosen and rejected, filled 75.0 %, 1 pairs cut to fit; 1 left out, whose answers "
            "would be cut off");
  write({{{1, 2, 3, 4}, {0, 0, 0, 1}}, {{1, 2}, {0, 2}}});
  expect_config_error([&] { source(2); }, {"1 pairs, and none has answers within the first 3"});
}

TEST_F(PairSourceTest, OtherFilesAreTheUsersError) {
  write_token_file(prefix_, {{1, 2, 3}, {4, 5}});
  EXPECT_FALSE(TokenStream(prefix_, 0).has_pairs());
  expect_config_error([&] { source(4); }, {"2 documents and no loss mask", "--format preference"});
  write({{{1, 2}, {0, 1}}, {{1, 3}, {0, 2}}, {{1, 4}, {0, 1}}});
  expect_config_error([&] { source(4); }, {"3 documents and a loss mask"});
  write({{{1, 2}, {0, 1}}, {{1, 3}, {0, 1}}});
  EXPECT_FALSE(TokenStream(prefix_, 0).has_pairs());
  expect_config_error([&] { source(4).get(0, {}); }, {"byte 1 at position 3; expected 0 or 2"});
  write({{{1, 2}, {0, 0}}, {{1, 3}, {0, 2}}});
  expect_config_error([&] { source(4).get(0, {}); }, {"document 0 has no answer"});
  write({{{1}, {1}}, {{1, 3}, {0, 2}}});
  expect_config_error([&] { source(4).get(0, {}); }, {"document 0 has 1 tokens"});
}

}  // namespace
}  // namespace trireme::dataset
