#include "trireme/base/io/mapped_scratch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const auto kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

// How many of the pages this process or the kernel has in memory.
size_t resident_pages(std::byte* begin, size_t num_bytes) {
  std::vector<unsigned char> pages((num_bytes + kPage - 1) / kPage);
  EXPECT_EQ(::mincore(begin, num_bytes, pages.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(pages, [](auto page) { return page & 1; }));
}

TEST(MappedScratch, IsZeroAndKeepsItsContentOverHints) {
  const harness::TemporaryFolder folder;
  MappedScratch scratch(folder.path(), {});
  for (const size_t num_bytes : {size_t{1}, kPage - 1, kPage, 3 * kPage + 8, size_t{1} << 20}) {
    const std::shared_ptr<std::byte> memory = scratch.take(num_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % kPage, 0);
    EXPECT_TRUE(std::all_of(memory.get(), memory.get() + num_bytes,
                            [](std::byte each) { return each == std::byte{0}; }));
    std::vector<std::byte> values(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i) values[i] = static_cast<std::byte>(i * 37 >> 3);
    std::ranges::copy(values, memory.get());
    // Parts, whose pages may be shared with others.
    scratch.let_go(memory.get() + num_bytes / 3, num_bytes / 2);
    scratch.will_need(memory.get(), num_bytes);
    scratch.let_go(memory.get(), num_bytes);
    EXPECT_EQ(std::memcmp(memory.get(), values.data(), num_bytes), 0) << num_bytes;
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// On the disk, of the unnamed files there that this process has open.
size_t space_of_files_in(const fs::path& folder) {
  size_t num_bytes = 0;
  for (const fs::directory_entry& descriptor : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(descriptor, ignored).string();
    struct stat status {};
    if (!target.starts_with(folder.string()) || ::stat(descriptor.path().c_str(), &status) != 0) {
      continue;
    }
    num_bytes += static_cast<size_t>(status.st_blocks) * 512;
  }
  return num_bytes;
}

TEST(MappedScratch, GivesUpMemoryAndDisk) {
  const harness::TemporaryFolder folder;
  constexpr size_t kBytes = size_t{16} << 20;
  MappedScratch scratch(folder.path(), {});
  std::shared_ptr<std::byte> memory = scratch.take(kBytes);
  std::memset(memory.get(), 1, kBytes);
  const auto mapped = [&] {
    size_t of_file = 0;
    FILE* const status = std::fopen("/proc/self/statm", "r");
    size_t total = 0, resident = 0;
    EXPECT_EQ(std::fscanf(status, "%zu %zu %zu", &total, &resident, &of_file), 3);
    std::fclose(status);
    return of_file * kPage;
  };
  const size_t before = mapped();
  scratch.let_go(memory.get(), kBytes);
  EXPECT_LE(mapped() + kBytes / 2, before);
  EXPECT_EQ(memory.get()[kBytes - 1], std::byte{1});
  EXPECT_GT(resident_pages(memory.get(), kBytes), 0);

  EXPECT_GE(space_of_files_in(folder.path()), kBytes);
  memory.reset();
  EXPECT_LT(space_of_files_in(folder.path()), kBytes / 2);
}

TEST(MappedScratch, SaysWhatTheDiskLacks) {
  const harness::TemporaryFolder folder;
  MappedScratch scratch(folder.path(), {.content = "this rank's weights"});
  const uint64_t wanted = fs::space(folder.path()).available / kPage * kPage * 2;
  const std::string error = harness::message_of<ConfigError>([&] { scratch.take(wanted); });
  EXPECT_NE(error.find(concat("no room for ", wanted, " bytes, this rank's weights")),
            std::string::npos)
      << error;
  EXPECT_NE(scratch.take(1), nullptr);
}

TEST(MappedScratch, LeavesOtherMemoryAlone) {
  const harness::TemporaryFolder folder;
  MappedScratch scratch(folder.path(), {});
  const std::shared_ptr<std::byte> memory = scratch.take(kPage);
  const std::vector<int> other(size_t{4} * kPage, 7);
  scratch.let_go(other.data(), other.size() * sizeof(int));
  scratch.let_go(memory.get(), 4 * kPage);
  scratch.will_need(nullptr, kPage);
  EXPECT_TRUE(std::ranges::all_of(other, [](int each) { return each == 7; }));
}

}  // namespace
}  // namespace trireme
