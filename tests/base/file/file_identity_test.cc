#include "trireme/base/file/file.h"

#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class FileIdentityTest : public ::testing::Test {
 protected:
  FileIdentityTest() {
    fs::create_directory(folder_ / "run");
    descriptor_ = ::open((folder_ / "run").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  ~FileIdentityTest() override { ::close(descriptor_); }

  harness::TemporaryFolder folder_;
  int descriptor_ = -1;
};

TEST_F(FileIdentityTest, IsThatOfWhatIsOpen) {
  ASSERT_GE(descriptor_, 0);
  ASSERT_TRUE(identity_of(descriptor_));
  EXPECT_EQ(identity_of(descriptor_), identity_of(folder_ / "run"));
  EXPECT_NE(identity_of(descriptor_), identity_of(folder_.path()));
  fs::create_directory_symlink("run", folder_ / "link");
  EXPECT_EQ(identity_of(descriptor_), identity_of(folder_ / "link"));
  EXPECT_EQ(place_of(descriptor_), fs::canonical(folder_ / "run"));
}

TEST_F(FileIdentityTest, GoesWithAFolderThatIsMoved) {
  fs::rename(folder_ / "run", folder_ / "moved");
  EXPECT_FALSE(identity_of(folder_ / "run"));
  EXPECT_EQ(place_of(descriptor_), fs::canonical(folder_ / "moved"));
  fs::create_directory(folder_ / "run");
  EXPECT_NE(identity_of(descriptor_), identity_of(folder_ / "run"));
}

// A file system may give the number of a removed file to the next one: not while it is open.
TEST_F(FileIdentityTest, IsNotThatOfAnotherAtItsPlace) {
  for (int i = 0; i < 20; ++i) {
    fs::remove(folder_ / "run");
    EXPECT_EQ(place_of(descriptor_), fs::path());
    fs::create_directory(folder_ / "run");
    EXPECT_NE(identity_of(descriptor_), identity_of(folder_ / "run"));
    EXPECT_EQ(place_of(descriptor_), fs::path());
  }
}

TEST_F(FileIdentityTest, IsNoneWhereNothingIs) {
  EXPECT_FALSE(identity_of(folder_ / "none"));
  EXPECT_FALSE(identity_of(-1));
  EXPECT_EQ(place_of(-1), fs::path());
}

}  // namespace
}  // namespace trireme
