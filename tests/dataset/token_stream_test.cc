#include "trireme/dataset/token_stream.h"

#include "tests/dataset/data.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

class TokenStreamTest : public testing::Test {
 protected:
  // Three documents; the second token of each is to be learnt, and the last one of the last.
  void write() const {
    TokenFile file(prefix_, 100, /*has_mask=*/true);
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

}  // namespace
}  // namespace trireme::dataset
