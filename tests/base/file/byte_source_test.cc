#include "trireme/base/file/byte_source.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

TEST(ByteSource, AFileOfThisMachineIsOne) {
  const harness::TemporaryFolder folder;
  const std::string path = (folder.path() / "file").string();
  EXPECT_EQ(local_files().find(path), nullptr);
  EXPECT_EQ(local_files().find(folder.path().string()), nullptr);  // a folder is no file
  EXPECT_THROW(local_files().open(path), Error);
  const std::string text(3'000'001, 'x');
  write_file_atomically(path, text);
  EXPECT_EQ(local_files().find(path)->num_bytes(), text.size());
  const std::unique_ptr<ByteSource> file = local_files().open(path);
  EXPECT_EQ(file->name(), path);
  EXPECT_EQ(file->num_bytes(), text.size());
  EXPECT_EQ(read_all(*file, text.size()), text);
  EXPECT_THROW(read_all(*file, text.size() - 1), Error);
  EXPECT_EQ(checksum(*file), checksum(InputFile(path)));
  std::byte two[2];
  EXPECT_THROW(file->read(text.size() - 1, two), Error);
}

TEST(ByteSource, IsKeptInMemory) {
  const harness::TemporaryFolder folder;
  const std::string path = (folder.path() / "file").string();
  std::string text;
  for (int i = 0; text.size() < 20'000'000; ++i) text += std::to_string(i);
  write_file_atomically(path, text);
  const std::unique_ptr<ByteSource> kept = kept_in_memory(*local_files().open(path));
  std::filesystem::remove(path);
  EXPECT_EQ(kept->name(), path);
  EXPECT_EQ(read_all(*kept, text.size()), text);
  std::byte two[2];
  EXPECT_THROW(kept->read(text.size() - 1, two), Error);
  EXPECT_THROW(kept->read(~uint64_t{0}, two), Error);
  EXPECT_NO_THROW(kept->read(text.size(), {}));
}

TEST(Url, IsASchemeAndTwoSlashes) {
  for (const char* name : {"s3://bucket/x", "https://host/x", "x+y.z-1://"})
    EXPECT_TRUE(is_url(name)) << name;
  for (const char* name : {"", "://x", "data/python", "s3:/bucket", "a b://x", "./s3://x"}) {
    EXPECT_FALSE(is_url(name)) << name;
  }
}

}  // namespace
}  // namespace trireme
