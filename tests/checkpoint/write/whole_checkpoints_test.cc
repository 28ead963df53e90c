#include "trireme/checkpoint/write/whole_checkpoints.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

class WholeCheckpointsTest : public ::testing::Test {
 protected:
  fs::path save_step(int64_t step) const {
    const at::Tensor tensor = at::arange(step, step + 5000);
    const std::vector<Global> globals = {{"w", tensor, {tensor.sizes().vec(), {}, {}}}};
    save_all(root_.path(), step, globals, 1);
    return root_.path() / folder_name(step);
  }
  // Changes the last bit of a file.
  static void damage(const fs::path& path) {
    const std::string bytes = read_file(path);
    overwrite(path, with_flipped_bit(bytes, 8 * bytes.size() - 1));
  }

  harness::TemporaryFolder root_;
  WholeCheckpoints whole_;
};

constexpr const char* kFile = "rank-000-of-001.safetensors";

TEST_F(WholeCheckpointsTest, TheNewestOfWhichEveryByteIsRight) {
  EXPECT_EQ(whole_.newest(root_.path() / "none"), std::nullopt);
  const fs::path first = save_step(1), second = save_step(2), third = save_step(3);
  EXPECT_EQ(WholeCheckpoints().newest(root_.path()), third);
  damage(third / kFile);
  EXPECT_EQ(whole_.newest(root_.path()), second);
  damage(second / kManifestName);
  EXPECT_EQ(whole_.newest(root_.path()), first);
  fs::resize_file(first / kFile, 100);
  EXPECT_EQ(WholeCheckpoints().newest(root_.path()), std::nullopt);
}

// Otherwise every save would read all that it does not write.
TEST_F(WholeCheckpointsTest, WhatIsKnownIsNotReadAgain) {
  const fs::path first = save_step(1), second = save_step(2);
  whole_.add(second);
  damage(second / kFile);
  EXPECT_EQ(whole_.newest(root_.path()), second);
  damage(second / kManifestName);
  EXPECT_EQ(whole_.newest(root_.path()), first) << "it is another one under the same name";
}

}  // namespace
}  // namespace trireme::checkpoint
