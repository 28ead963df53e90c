#include "trireme/checkpoint/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFile = "a.safetensors";

// A folder with one file that holds the rows 1 and 2 of a [3, 4] tensor "w", and its manifest.
struct Saved {
  Saved() {
    global = random_tensor("w", {3, 4}, at::kInt);
    SafetensorsWriter writer(folder / kFile, {{.name = "w", .dtype = at::kInt, .shape = {2, 4}}});
    const std::string sum = writer.write(global.narrow(0, 1, 2));
    writer.finish(false);
    record = {.dtype = at::kInt,
              .shape = {3, 4},
              .pieces = {{.box = {{1, 0}, {2, 4}}, .file = kFile, .checksum = sum}}};
    manifest.format_version = 1;
    manifest.tensors["w"] = record;
    manifest.files = {{kFile, writer.num_bytes(), writer.header_checksum()}};
  }
  std::string error() {
    return checkpoint_error([&] {
      Shards shards(folder.path(), manifest);
      shards.check("w", record, record.pieces[0]);
    });
  }

  harness::TemporaryFolder folder;
  at::Tensor global;
  TensorRecord record;
  Manifest manifest;
};

TEST(Shards, AnUnharmedPieceIsReadWhereTheBoxMeetsIt) {
  Saved saved;
  EXPECT_EQ(saved.error(), "");
  Shards shards(saved.folder.path(), saved.manifest);
  // Rows 0 and 1, columns 1 to 3: the first row is in no piece and stays as it is.
  at::Tensor target = at::empty({2, 3}, at::TensorOptions().dtype(at::kInt));
  target.fill_(7);
  shards.read_box("w", saved.record, {{0, 1}, {2, 3}}, target);
  harness::assert_same_bits(target.narrow(0, 1, 1), saved.global.narrow(0, 1, 1).narrow(1, 1, 3),
                            "met");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(target.const_data_ptr<int>()[i], 7);
}

TEST(Shards, AnyFlippedBitOfTheFileIsNoticed) {
  Saved saved;
  const std::string content = read_file(saved.folder / kFile);
  for (size_t bit = 0; bit < content.size() * 8; ++bit) {
    overwrite(saved.folder / kFile, with_flipped_bit(content, bit));
    ASSERT_THAT(saved.error(), HasSubstr(kFile)) << "bit " << bit;
  }
  overwrite(saved.folder / kFile, content);
  EXPECT_EQ(saved.error(), "");
}

TEST(Shards, ATruncatedFileIsCalledSo) {
  Saved saved;
  const std::string content = read_file(saved.folder / kFile);
  for (size_t length = 0; length < content.size(); ++length) {
    overwrite(saved.folder / kFile, content.substr(0, length));
    ASSERT_THAT(saved.error(), AllOf(HasSubstr(kFile), HasSubstr("truncated"))) << length;
  }
}

TEST(Shards, AnotherCheckpointsFileIsNoticed) {
  Saved saved;
  SafetensorsWriter writer(saved.folder / kFile,
                           {{.name = "v", .dtype = at::kInt, .shape = {2, 4}}});
  writer.write(saved.global.narrow(0, 1, 2));
  writer.finish(false);
  EXPECT_THAT(saved.error(), HasSubstr("header checksum"));
}

TEST(Shards, AMissingFileIsNamed) {
  Saved saved;
  std::filesystem::remove(saved.folder / kFile);
  EXPECT_THAT(saved.error(), AllOf(HasSubstr("/a.safetensors"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace trireme::checkpoint
