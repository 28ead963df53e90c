#include "trireme/base/io/scratch_file.h"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string error_of(const fs::path& folder, uint64_t num_bytes) {
  return harness::message_of<ConfigError>([&] { const ScratchFile file(folder, num_bytes); });
}

TEST(ScratchFile, TakesItsSpaceAndHasNoName) {
  const harness::TemporaryFolder folder;
  const fs::path path = folder / "deep/er";
  const ScratchFile file(path, 1 << 20);
  struct stat status {};
  ASSERT_EQ(::fstat(file.io().descriptor, &status), 0);
  EXPECT_EQ(status.st_size, 1 << 20);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);  // not a hole
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(ScratchFile, IsZero) {
  const harness::TemporaryFolder folder;
  const ScratchFile file(folder.path(), 3 * kIoAlignment);
  auto* block = static_cast<char*>(std::aligned_alloc(kIoAlignment, kIoAlignment));
  for (off_t i = 0; i < 3; ++i) {
    ASSERT_EQ(::pread(file.io().descriptor, block, kIoAlignment, i * kIoAlignment), kIoAlignment);
    for (size_t k = 0; k < kIoAlignment; ++k) ASSERT_EQ(block[k], 0);
  }
  std::free(block);
}

TEST(ScratchFile, GrowsIfThereIsRoom) {
  const harness::TemporaryFolder folder;
  ScratchFile file(folder.path(), kIoAlignment);
  const int descriptor = file.io().descriptor;
  file.grow(1 << 20);
  struct stat status {};
  ASSERT_EQ(::fstat(descriptor, &status), 0);
  EXPECT_EQ(status.st_size, (1 << 20) + static_cast<off_t>(kIoAlignment));
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
  const uint64_t wanted = fs::space(folder.path()).available * 2;
  const std::string error = harness::message_of<ConfigError>([&] { file.grow(wanted); });
  EXPECT_NE(error.find(concat("no room for ", wanted, " bytes")), std::string::npos) << error;
  file.grow(kIoAlignment);
  ASSERT_EQ(::fstat(descriptor, &status), 0);
  EXPECT_EQ(status.st_size, (1 << 20) + 2 * static_cast<off_t>(kIoAlignment));
}

TEST(ScratchFile, MayBeEmpty) {
  const harness::TemporaryFolder folder;
  const ScratchFile file(folder.path(), 0);
  EXPECT_GE(file.io().descriptor, 0);
}

TEST(ScratchFile, TooSmallADiskIsAnErrorBeforeAnythingIsWritten) {
  const harness::TemporaryFolder folder;
  const uint64_t wanted = fs::space(folder.path()).available * 2;
  const std::string error = error_of(folder.path(), wanted);
  for (const std::string& part :
       {folder.path().string(), std::to_string(wanted), std::string("bytes are free"),
        std::string("--offload.folder=PATH")}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(ScratchFile, ALimitOnFilesIsAnErrorAtTheStartToo) {
  const auto exits = harness::fork_processes(1, [](int) {
    const harness::TemporaryFolder folder;
    const rlimit limit{1 << 20, 1 << 20};
    std::signal(SIGXFSZ, SIG_IGN);  // as the program does
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::string error = error_of(folder.path(), 2 << 20);
    EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  });
  EXPECT_EQ(exits, std::vector<harness::ExitStatus>{0});
}

TEST(ScratchFile, AFolderThatCannotBeIsAnError) {
  const std::string error = error_of("/dev/null/folder", 4096);
  EXPECT_NE(error.find("/dev/null/folder"), std::string::npos) << error;
  EXPECT_NE(error.find("Not a directory"), std::string::npos) << error;
  EXPECT_NE(error_of("/proc", 4096), "");
}

}  // namespace
}  // namespace trireme
