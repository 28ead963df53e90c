#include "trireme/dataset/file/new_file.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace trireme::dataset
