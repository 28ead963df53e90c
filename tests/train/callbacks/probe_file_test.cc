#include "trireme/train/callbacks/probe_file.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;

verify::ProbedBlock block_of(const std::string& name, int64_t row, const at::Tensor& values) {
  return {.name = name,
          .whole = {4, values.size(1)},
          .boxes = {{.offset = {row, 0}, .size = values.sizes().vec()}},
          .values = values};
}

// Files of two ranks.
class ProbeFileTest : public testing::Test {
 protected:
  ProbeFileTest() {
    for (const char* name : {"a", "b"}) {
      paths_.push_back(folder_.path() / name);
      files_.push_back(std::make_unique<ProbeFile>(paths_.back(), ProbeRoom{}));
    }
  }
  std::vector<StoredProbes> ranks() const {
    std::vector<StoredProbes> all;
    for (const auto& file : files_) all.push_back(parse_probes(to_text(file->probes())));
    return all;
  }

  harness::TemporaryFolder folder_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::unique_ptr<ProbeFile>> files_;
  at::Tensor x_ = at::arange(12.0, at::kDouble).view({4, 3});
};

TEST_F(ProbeFileTest, PartsOfAllRanksMakeTheWhole) {
  files_[0]->put(block_of("x", 0, x_.narrow(0, 0, 1)));
  files_[1]->put({.name = "x",
                  .whole = {4, 3},
                  .boxes = {{.offset = {1, 0}, .size = {1, 3}}, {.offset = {3, 0}, .size = {1, 3}}},
                  .values = at::cat({x_.narrow(0, 1, 1), x_.narrow(0, 3, 1)})});
  EXPECT_EQ(num_covered(ranks(), "x"), 9);
  files_[0]->put(block_of("x", 2, x_.narrow(0, 2, 1)));
  EXPECT_EQ(num_covered(ranks(), "x"), 12);
  const auto read = [&](const mesh::Box& box) { return read_blocks(paths_, ranks(), "x", box); };
  EXPECT_TRUE(at::equal(read({.offset = {0, 0}, .size = {4, 3}}), x_));
  EXPECT_TRUE(
      at::equal(read({.offset = {1, 1}, .size = {2, 2}}), x_.narrow(0, 1, 2).narrow(1, 1, 2)));
}

TEST_F(ProbeFileTest, BlocksMayHavePartsOfRows) {
  for (const int64_t rank : {0, 1}) {
    const mesh::Box box{.offset = {0, 2 * rank}, .size = {4, 2 - rank}};
    files_[static_cast<size_t>(rank)]->put({.name = "x",
                                            .whole = {4, 3},
                                            .boxes = {box},
                                            .values = x_.narrow(1, box.offset[1], box.size[1])});
  }
  const mesh::Box rows{.offset = {1, 0}, .size = {2, 3}}, middle{.offset = {2, 1}, .size = {2, 2}};
  EXPECT_TRUE(at::equal(read_blocks(paths_, ranks(), "x", rows), x_.narrow(0, 1, 2)));
  EXPECT_TRUE(
      at::equal(read_blocks(paths_, ranks(), "x", middle), x_.narrow(0, 2, 2).narrow(1, 1, 2)));
}

TEST_F(ProbeFileTest, ABlockThatComesAgainIsLeftOut) {
  files_[0]->put(block_of("x", 0, x_));
  files_[0]->put(block_of("x", 0, x_ * 2));
  files_[0]->put(block_of("y", 0, x_));
  EXPECT_EQ(files_[0]->probes().at("x").blocks.size(), 1U);
  EXPECT_EQ(files_[0]->probes().at("x").order, 0);
  EXPECT_EQ(files_[0]->probes().at("y").order, 1);
  EXPECT_TRUE(at::equal(read_blocks(paths_, ranks(), "x", {.offset = {0, 0}, .size = {4, 3}}), x_));
}

TEST_F(ProbeFileTest, ReplicasAreCompared) {
  files_[0]->put(block_of("x", 0, x_));
  files_[1]->put(block_of("x", 0, x_));
  EXPECT_TRUE(compare_replicas(paths_, ranks(), "x").ranks.empty());
  at::Tensor other = x_.clone();
  other[3][2] = 12;  // 11 on the first rank
  files_[0]->put(block_of("y", 0, x_));
  files_[1]->put(block_of("y", 0, other));
  const ProbeReplicas found = compare_replicas(paths_, ranks(), "y");
  EXPECT_EQ(found.ranks, std::vector{1});
  EXPECT_EQ(found.absolute, 1);
  EXPECT_DOUBLE_EQ(found.relative, 1 / 12.0);
  EXPECT_EQ(num_covered(ranks(), "y"), 12);
  other[0][0] = std::nan("");
  files_[0]->put(block_of("z", 0, x_));
  files_[1]->put(block_of("z", 0, other));
  EXPECT_TRUE(std::isinf(compare_replicas(paths_, ranks(), "z").absolute));
}

TEST_F(ProbeFileTest, LongReplicasAreComparedToTheirEnd) {
  const at::Tensor x = at::arange(60'000.0, at::kDouble).view({4, 15'000});
  at::Tensor other = x.clone();
  other[0][1] += 1;
  other[3][14'999] -= 3;
  files_[0]->put(block_of("x", 0, x));
  files_[1]->put(block_of("x", 0, other));
  EXPECT_EQ(compare_replicas(paths_, ranks(), "x").absolute, 3);
  EXPECT_DOUBLE_EQ(compare_replicas(paths_, ranks(), "x").relative, 3 / 59'999.0);
}

TEST_F(ProbeFileTest, ANameHasOneForm) {
  files_[0]->put(block_of("x", 0, x_.narrow(0, 0, 2)));
  const auto put = [&](const verify::ProbedBlock& block) {
    return harness::message_of<ConfigError>([&] { files_[0]->put(block); });
  };
  EXPECT_THAT(put(block_of("x", 2, at::zeros({2, 5}, at::kDouble))), HasSubstr("[4, 5]"));
  EXPECT_THAT(put(block_of("x", 2, at::zeros({2, 3}))), HasSubstr("one form"));
}

TEST_F(ProbeFileTest, ADiskThatIsTooSmallIsFoundByTheNames) {
  // 96 bytes each, and as many for the gradient, twice: the record and the file.
  ProbeFile file(folder_.path() / "small", {.free = 500, .copies = 2});
  file.put(block_of("x", 0, x_.narrow(0, 0, 1)));
  file.put(block_of("x@gradient", 0, x_.narrow(0, 0, 1)));
  EXPECT_THAT(harness::message_of<ConfigError>([&] { file.put(block_of("y", 0, x_)); }),
              HasSubstr("record.activations"));
}

TEST_F(ProbeFileTest, TheFileGoesWithTheObject) {
  EXPECT_TRUE(std::filesystem::exists(paths_[0]));
  files_.clear();
  EXPECT_FALSE(std::filesystem::exists(paths_[0]));
}

TEST_F(ProbeFileTest, TextOfAnotherFormIsRefused) {
  for (const char* text :
       {"3", R"([["x", "F32", [2], 0, 0]])", R"([["x", "F32", [2], 0, 0, [[[0, 0], [2], 0, ""]]]])",
        R"([["x", "F32", [], 0, 0, []]])", R"([["x", "F99", [2], 0, 0, []]])"}) {
    EXPECT_THROW(parse_probes(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace trireme::train
