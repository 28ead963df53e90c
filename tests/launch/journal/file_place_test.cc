#include "trireme/launch/journal/file_place.h"

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme::launch {
namespace {

class FilePlaceTest : public testing::Test {
 protected:
  void put(const std::string& text) { OutputFile(path_).write(text); }
  void append(const std::string& text) { OutputFile(path_, /*append=*/true).write(text); }
  std::string read(FilePlace& place, size_t num_bytes) {
    return place.read(open_regular_file(path_).get(), num_bytes);
  }
  bool is_in(const FilePlace& place) { return place.is_in(open_regular_file(path_).get()); }

  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "file";
};

TEST_F(FilePlaceTest, ReadsWhatIsNewInPieces) {
  FilePlace place;
  EXPECT_FALSE(place.is_set());
  put("abcdef");
  EXPECT_EQ(read(place, 4), "abcd");
  EXPECT_TRUE(place.is_set());
  EXPECT_FALSE(place.is_at_end_of(path_));
  EXPECT_EQ(read(place, 4), "ef");
  EXPECT_TRUE(place.is_at_end_of(path_));
  EXPECT_EQ(read(place, 4), "");
  append("gh");
  EXPECT_FALSE(place.is_at_end_of(path_));
  EXPECT_TRUE(is_in(place));
  EXPECT_EQ(read(place, 4), "gh");
  EXPECT_EQ(place.offset(), 8U);
}

TEST_F(FilePlaceTest, KnowsItsFileFromOthersOfTheSameName) {
  // Longer than what is remembered, so that the middle is not.
  const std::string text(2000, 'x');
  FilePlace place;
  EXPECT_FALSE(place.is_in(open_regular_file("/proc/self/status").get()));
  put(text);
  read(place, 2000);
  append("more");
  EXPECT_TRUE(is_in(place));
  put("y" + text);  // the same inode; another beginning
  EXPECT_FALSE(is_in(place));
  put(text.substr(0, 1999) + "y" + text);  // another end
  EXPECT_FALSE(is_in(place));
  put(text.substr(0, 1999));  // cut
  EXPECT_FALSE(is_in(place));
  write_file_atomically(path_, text);  // another inode
  EXPECT_FALSE(is_in(place));
}

TEST_F(FilePlaceTest, AFileThatWasEmptyIsKnownByItsInode) {
  FilePlace place;
  put("");
  EXPECT_EQ(read(place, 10), "");
  append("a");
  EXPECT_TRUE(is_in(place));
  EXPECT_EQ(read(place, 10), "a");
  std::filesystem::remove(path_);
  EXPECT_FALSE(place.is_at_end_of(path_));
}

}  // namespace
}  // namespace trireme::launch
