#include "trireme/dataset/file/new_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

TEST(NewFile, AppearsWhenItIsComplete) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "new" / "a.bin";
  {
    NewFile file(path);
    file.write("half");
  }
  EXPECT_TRUE(harness::names_in(folder / "new").empty());
  NewFile file(path);
  file.write("the ");
  file.write("whole");
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(read_file(path), "the whole");
  EXPECT_EQ(harness::names_in(folder / "new"), std::vector<std::string>{"a.bin"});
}

TEST(NewFile, APlaceThatCannotBeWrittenIsTheUsersToChoose) {
  const harness::TemporaryFolder folder;
  write_file_atomically(folder / "file", "x");
  EXPECT_TRUE(harness::message_of<ConfigError>([&] {
                NewFile(folder / "file" / "a");
              }).ends_with("; choose another --output"));
}

// Renaming onto a device would take the device from the machine.
TEST(NewFile, ReplacesNothingButAFile) {
  const harness::TemporaryFolder folder;
  const auto fifo = folder / "pipe";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(harness::message_of<ConfigError>([&] { NewFile{fifo}; }),
            fifo.string() +
                " is a device or a pipe; expected a regular file or a new one: choose another "
                "--output");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  const std::string is_folder =
      " is a folder; expected the name of a file: choose another --output";
  const auto sub = folder / "folder";
  std::filesystem::create_directory(sub);
  EXPECT_EQ(harness::message_of<ConfigError>([&] { NewFile{sub}; }), sub.string() + is_folder);
  EXPECT_EQ(harness::message_of<ConfigError>([&] { NewFile{folder / "new/"}; }),
            (folder / "new/").string() + is_folder);
  EXPECT_EQ(harness::names_in(folder.path()), (std::vector<std::string>{"folder", "pipe"}));
}

TEST(NewFile, ReplacesAFileWhenItIsComplete) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_file_atomically(path, "old");
  NewFile file(path);
  file.write("new");
  EXPECT_EQ(read_file(path), "old");
  file.commit();
  EXPECT_EQ(read_file(path), "new");
}

}  // namespace
}  // namespace trireme::dataset
