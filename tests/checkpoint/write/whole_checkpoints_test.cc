#include "trireme/checkpoint/write/link_shared.h"

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

TEST_F(WholeCheckpointsTest, AreThoseThatThisProcessHasWritten) {
  const fs::path first = save_step(1), second = save_step(2);
  EXPECT_FALSE(whole_.find(first).has_value());
  whole_.add(second, 7);
  EXPECT_FALSE(whole_.find(first).has_value());
  EXPECT_TRUE(whole_.find(second).has_value());
  damage(second / kManifestName);
  EXPECT_FALSE(whole_.find(second).has_value()) << "it is another one under the same name";
  whole_.add(root_ / "none", 8);
}

}  // namespace
}  // namespace trireme::checkpoint
