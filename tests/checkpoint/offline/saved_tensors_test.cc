#include "trireme/checkpoint/offline/saved_tensors.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/offline/mixed_tensors.h"
#include "tests/checkpoint/version_1.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SavedTensors, ReadsWholeTensorsAndBoxesOfAnyLayout) {
  for (const int ranks : {1, 2, 3}) {
    const TemporaryFolder root;
    const std::vector<Global> saved = mixed_tensors(ranks);
    save_all(root.path(), 4, saved, ranks);
    const SavedTensors source(root / "step-000004");
    EXPECT_EQ(source.step(), 4);
    EXPECT_EQ(source.num_ranks(), ranks);
    EXPECT_EQ(source.state(), R"({"seed":1})");
    ASSERT_EQ(source.tensors().size(), saved.size());
    int64_t bytes = 0;
    for (const Global& global : saved) {
      EXPECT_EQ(source.tensors().at(global.name).shape, global.tensor.sizes().vec());
      harness::assert_same_bits(source.read(global.name), global.tensor, global.name);
      bytes += static_cast<int64_t>(global.tensor.nbytes());
    }
    EXPECT_EQ(num_bytes(source), bytes);
    const at::Tensor& matrix = saved[0].tensor;
    harness::assert_same_bits(source.read_box("matrix", {{2, 1}, {4, 3}}),
                              matrix.narrow(0, 2, 4).narrow(1, 1, 3).contiguous(), "box");
  }
}

TEST(SavedTensors, OpensEachFileOnce) {
  const TemporaryFolder root;
  const std::vector<Global> saved = mixed_tensors(2);
  save_all(root.path(), 1, saved, 2);
  const SavedTensors source(root / "step-000001");
  for (const Global& global : saved) source.read(global.name);
  std::filesystem::remove_all(root / "step-000001");
  harness::assert_same_bits(source.read("wide"), saved[1].tensor, "wide");
}

// Its pieces have one checksum each, so reading a tensor in n parts must not read it n times.
TEST(SavedTensors, APieceOfFormat1IsCheckedOnceForAllItsParts) {
  const TemporaryFolder root;
  const at::Tensor whole = random_tensor("whole", {6, 4}, at::kInt);
  save_all(root.path(), 1, std::vector<Global>{{"whole", whole, mesh::Layout({6, 4}, {})}}, 1);
  to_version_1(root / "step-000001");
  const Manifest manifest = read_manifest(root / "step-000001");
  Shards shards(root / "step-000001", manifest);
  for (int64_t row = 0; row < 6; ++row) {
    at::Tensor part = at::empty({1, 4}, at::kInt);
    shards.read_box("whole", manifest.tensors.at("whole"), {{row, 0}, {1, 4}}, part);
    harness::assert_same_bits(part, whole.narrow(0, row, 1), "row");
  }
  EXPECT_EQ(shards.num_bytes_read(), static_cast<int64_t>(whole.nbytes()));
}

TEST(SavedTensors, NamesTheTensorThatIsMissing) {
  const TemporaryFolder root;
  save_all(root.path(), 1, mixed_tensors(1), 1);
  const SavedTensors source(root / "step-000001");
  EXPECT_THAT(checkpoint_error([&] { source.read("matrx"); }),
              AllOf(HasSubstr("step-000001"), HasSubstr("\"matrx\""), HasSubstr("among its 7")));
  EXPECT_THAT(checkpoint_error([&] { SavedTensors(root / "step-000002"); }),
              HasSubstr("step-000002"));
}

TEST(SavedTensors, RefusesDamagedBytesInTheBoxOnly) {
  const TemporaryFolder root;
  save_all(root.path(), 1, mixed_tensors(2), 2);
  for (const auto& item : std::filesystem::directory_iterator(root / "step-000001")) {
    if (item.path().extension() != ".safetensors") continue;
    const std::string content = read_file(item.path());
    overwrite(item.path(), with_flipped_bit(content, 8 * content.size() - 1));
  }
  const SavedTensors source(root / "step-000001");
  int damaged = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    damaged += checkpoint_error([&] { source.read(name); }).find("damaged") != std::string::npos;
  }
  EXPECT_GE(damaged, 1);
  EXPECT_LE(damaged, 2);  // one in each file
}

}  // namespace
}  // namespace trireme::checkpoint
