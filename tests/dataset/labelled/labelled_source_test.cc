#include "trireme/dataset/labelled/labelled_source.h"

#include "tests/dataset/data.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_files.h"

namespace trireme::dataset {
namespace {

using LabelledTokens = std::vector<int32_t>;

class LabelledSourceTest : public testing::Test {
 protected:
  void write(const std::vector<std::pair<LabelledTokens, int32_t>>& texts) const {
    TokenFile file(prefix_, 100, {.classes = 3});
    for (const auto& [tokens, label] : texts) file.add_labelled(tokens, label);
    file.complete();
    file.publish();
  }
  LabelledSource source(int64_t T, int64_t classes = 3) const {
    return {TokenStream(prefix_, 100), {.sequence_length = T}, classes};
  }
  static std::vector<int64_t> numbers(const NamedTensors& sample, std::string_view name) {
    const at::Tensor tensor = find_tensor(sample, name);
    const auto* begin = tensor.const_data_ptr<int64_t>();
    return {begin, begin + tensor.numel()};
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

TEST_F(LabelledSourceTest, ASampleIsATextWithItsLabelAndPadding) {
  using Numbers = std::vector<int64_t>;
  write({{{1, 2, 3}, 2}, {{1, 4, 5, 6, 7, 9}, 0}, {{1, 2, 8, 9}, 1}});
  const LabelledSource texts = source(4);
  ASSERT_EQ(texts.size(), 3);
  EXPECT_EQ(numbers(texts.get(0, {}), "tokens"), (Numbers{1, 2, 3, 0}));
  EXPECT_EQ(numbers(texts.get(0, {}), "documents"), (Numbers{0, 0, 0, kPaddingDocument}));
  EXPECT_EQ(numbers(texts.get(0, {}), "targets"), (Numbers{2}));
  EXPECT_EQ(find_tensor(texts.get(0, {}), "targets").dim(), 0);
  // A long text keeps its last token, which ends it.
  EXPECT_EQ(numbers(texts.get(1, {}), "tokens"), (Numbers{1, 4, 5, 9}));
  EXPECT_EQ(numbers(texts.get(1, {}), "documents"), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(numbers(texts.get(2, {}), "targets"), (Numbers{1}));
  EXPECT_EQ(texts.description(), "a text each, filled 91.7 %, 1 of 3 texts cut to fit");
}

TEST_F(LabelledSourceTest, WhatDoesNotFitIsOneLine) {
  write({{{1, 2}, 2}, {{1, 3}, 0}});
  expect_config_error([&] { source(1); }, {"model.sequence_length is 1"});
  expect_config_error([&] { (void)source(4, 2).get(0, {}); },
                      {"a.label.bin", "the label of text 0 is 2", "2 classes"});
  write_token_file(prefix_, {{1, 2}, {1, 3}, {1, 4}});
  expect_config_error([&] { source(4); }, {"a.label.idx has 2 labels", "3 texts"});
  std::filesystem::remove(prefix_ + ".label.bin");
  expect_config_error([&] { source(4); }, {"a.label.bin"});
  std::filesystem::remove(prefix_ + ".label.idx");
  expect_config_error([&] { source(4); }, {"its labels are missing"});
}

}  // namespace
}  // namespace trireme::dataset
