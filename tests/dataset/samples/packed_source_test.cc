#include "trireme/dataset/samples/packed_source.h"

#include <fstream>
#include <map>

#include "tests/dataset/data.h"
#include "tests/harness/draw.h"
#include "trireme/dataset/token_files.h"

namespace trireme::dataset {
namespace {

using Numbers = std::vector<int64_t>;

class PackedSourceTest : public testing::Test {
 protected:
  PackedSource packed(int64_t T, int64_t vocab_size = 0) const {
    return {TokenStream(prefix_, vocab_size), {.sequence_length = T, .documents = true}};
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

Numbers numbers(const NamedTensors& sample, std::string_view name) {
  const at::Tensor tensor = find_tensor(sample, name);
  const auto* begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

TEST_F(PackedSourceTest, ASampleHasWholeDocumentsAndThenPadding) {
  write_token_file(prefix_, {{1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  const PackedSource source = packed(5);
  ASSERT_EQ(source.size(), 2);
  constexpr int64_t none = kNoTarget;
  EXPECT_EQ(numbers(source.get(0, {}), "tokens"), (Numbers{4, 5, 6, 1, 2}));
  EXPECT_EQ(numbers(source.get(0, {}), "targets"), (Numbers{5, 6, 7, 2, 3}));
  EXPECT_EQ(numbers(source.get(0, {}), "documents"), (Numbers{1, 1, 1, 0, 0}));
  EXPECT_EQ(numbers(source.get(1, {}), "tokens"), (Numbers{8, 0, 0, 0, 0}));
  EXPECT_EQ(numbers(source.get(1, {}), "targets"), (Numbers{9, none, none, none, none}));
  EXPECT_EQ(numbers(source.get(1, {}), "documents"), (Numbers{2, -1, -1, -1, -1}));
  EXPECT_DOUBLE_EQ(source.report().density, 0.6);
  EXPECT_EQ(source.description(), "3 whole documents fill 60.0 %");
}

TEST_F(PackedSourceTest, ADocumentThatIsTooLongIsCutAndCounted) {
  write_token_file(prefix_, {{1, 2, 3, 4}, {5}, {}, {6, 7, 8}});
  const PackedSource source = packed(2);
  EXPECT_EQ(source.report().documents, 2);
  EXPECT_EQ(source.report().cut, 1);
  EXPECT_EQ(source.report().left_out, 2);
  EXPECT_EQ(source.description(),
            "2 whole documents fill 100.0 %, 1 of them cut to fit; 2 of one token left out");
  EXPECT_EQ(numbers(source.get(0, {}), "targets"), (Numbers{2, 3}));
  EXPECT_EQ(numbers(source.get(1, {}), "targets"), (Numbers{7, 8}));
}

// A document of n tokens then takes n places.
TEST_F(PackedSourceTest, TargetsMayBeTheTokensThemselves) {
  write_token_file(prefix_, {{1, 2, 3}, {4}, {}, {5, 6, 7, 8, 9, 10}});
  const PackedSource source(TokenStream(prefix_, 0), {.sequence_length = 5, .ahead = 0});
  ASSERT_EQ(source.size(), 2);
  constexpr int64_t none = kNoTarget;
  EXPECT_EQ(numbers(source.get(0, {}), "tokens"), (Numbers{5, 6, 7, 8, 9}));
  EXPECT_EQ(numbers(source.get(0, {}), "targets"), (Numbers{5, 6, 7, 8, 9}));
  EXPECT_EQ(numbers(source.get(1, {}), "tokens"), (Numbers{1, 2, 3, 4, 0}));
  EXPECT_EQ(numbers(source.get(1, {}), "targets"), (Numbers{1, 2, 3, 4, none}));
  EXPECT_EQ(source.description(),
            "3 whole documents fill 90.0 %, 1 of them cut to fit; 1 empty ones left out");
}

TEST_F(PackedSourceTest, HasEveryPairOfTokensOfADocumentOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    harness::Draw draw(seed);
    const int64_t T = 1 + draw.below(int64_t{30});
    std::vector<std::vector<int32_t>> documents(static_cast<size_t>(1 + draw.below(50)));
    for (auto& document : documents) {
      document.resize(static_cast<size_t>(draw.below(T + 6)));
      for (int32_t& token : document) token = draw.below(100);
    }
    documents.push_back({1, 2});
    write_token_file(prefix_, documents);
    const PackedSource source = packed(T);
    std::map<int64_t, std::vector<int32_t>> found;
    int64_t filled = 0;
    for (int64_t i = 0; i < source.size(); ++i) {
      const NamedTensors sample = source.get(i, {});
      const Numbers tokens = numbers(sample, "tokens"), targets = numbers(sample, "targets"),
                    of = numbers(sample, "documents");
      for (size_t t = 0; t < tokens.size() && of[t] >= 0; ++t) {
        std::vector<int32_t>& document = found[of[t]];
        if (document.empty()) document.push_back(static_cast<int32_t>(tokens[t]));
        EXPECT_EQ(document.back(), tokens[t]);
        document.push_back(static_cast<int32_t>(targets[t]));
        ++filled;
      }
    }
    for (size_t i = 0; i < documents.size(); ++i) {
      if (documents[i].size() < 2) continue;
      documents[i].resize(std::min<size_t>(documents[i].size(), static_cast<size_t>(T) + 1));
      EXPECT_EQ(found[static_cast<int64_t>(i)], documents[i]) << "seed " << seed;
    }
    EXPECT_DOUBLE_EQ(source.report().density,
                     static_cast<double>(filled) / static_cast<double>(T * source.size()));
  }
}

TEST_F(PackedSourceTest, AMaskLeavesTargetsOut) {
  TokenFile file(prefix_, 100, {.mask = true});
  file.add_document(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{1, 0, 1});
  file.complete();
  file.publish();
  EXPECT_EQ(numbers(packed(3).get(0, {}), "targets"), (Numbers{kNoTarget, 3, kNoTarget}));
}

TEST_F(PackedSourceTest, WhatCannotBePackedIsOneLine) {
  write_token_file(prefix_, {{1}, {}, {2}});
  expect_config_error([&] { packed(3); }, {prefix_ + ".bin has no document of two tokens"});
  write_token_file(prefix_, {{1, 2}});
  expect_config_error([&] { packed(0); }, {"sequence_length is 0"});
  expect_config_error([&] { packed(2, 2).get(0, {}); }, {"token 2 at position 1"});
}

TEST_F(PackedSourceTest, AnIndexThatChangesUnderARunIsALineWithItsFile) {
  write_token_file(prefix_, {{1, 2, 3, 4}, {5, 6}});
  const PackedSource source = packed(4);
  const std::string other = folder_ / "b";
  write_token_file(other, {{1, 2, 3, 4, 5}, {6}});
  // Into the same file, which is open.
  const std::string bytes = read_file(idx_path(other));
  std::fstream(idx_path(prefix_), std::ios::in | std::ios::out | std::ios::binary) << bytes;
  expect_config_error([&] { source.get(0, {}); }, {prefix_ + ".idx changed while it was read"});
}

}  // namespace
}  // namespace trireme::dataset
