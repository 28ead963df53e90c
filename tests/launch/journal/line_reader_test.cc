#include "trireme/launch/journal/line_file.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

using Lines = std::vector<std::string>;

class LineReaders : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    OutputFile(folder_ / name).write(text);
  }
  static Lines read(LineReader& reader, bool is_final = false) {
    Lines lines;
    while (const auto line = reader.next(is_final)) lines.push_back(*line);
    return lines;
  }

  harness::TemporaryFolder folder_;
};

TEST_F(LineReaders, ReadsLinesOfAnyLengthWithAnyBuffer) {
  put("log", "a\n\nbcd\nlast");
  for (size_t buffer = 1; buffer < 16; ++buffer) {
    LineReader reader(folder_ / "log", {.buffer_bytes = buffer});
    EXPECT_EQ(read(reader), (Lines{"a", "", "bcd"}));
    EXPECT_EQ(read(reader), Lines{});
    EXPECT_EQ(read(reader, true), Lines{"last"});
  }
}

TEST_F(LineReaders, CutsLongLines) {
  put("log", std::string(25, 'x') + "\ny\n");
  for (size_t buffer = 1; buffer < 40; ++buffer) {
    LineReader reader(folder_ / "log", {.buffer_bytes = buffer, .max_line_bytes = 10});
    EXPECT_EQ(read(reader),
              (Lines{std::string(10, 'x'), std::string(10, 'x'), std::string(5, 'x'), "y"}));
  }
}

TEST_F(LineReaders, FollowsAFileThatComesAndGrows) {
  LineReader reader(folder_ / "log");
  EXPECT_EQ(read(reader), Lines{});
  AppendFile file(folder_ / "log");
  file.append("a\n");
  EXPECT_EQ(read(reader), Lines{"a"});
  file.append("b\n");
  EXPECT_EQ(read(reader), Lines{"b"});
  OutputFile(folder_ / "log", /*append=*/true).write("ha");
  EXPECT_EQ(read(reader), Lines{});
  OutputFile(folder_ / "log", /*append=*/true).write("lf\n");
  EXPECT_EQ(read(reader), Lines{"half"});
}

TEST_F(LineReaders, FollowsRotationsWithoutLossOrRepetition) {
  for (const int reads_every : {1, 2, 3}) {
    AppendFile file(folder_ / concat("log", reads_every));
    LineReader reader(file.path(), {.buffer_bytes = 5});
    Lines seen, written;
    for (int i = 0; i < 60; ++i) {
      written.push_back(concat("line ", i));
      file.append(written.back() + "\n");
      if (i % 5 == 4) file.rotate();
      if (i % reads_every == 0) {
        for (std::string& line : read(reader)) seen.push_back(std::move(line));
      }
    }
    for (std::string& line : read(reader)) seen.push_back(std::move(line));
    EXPECT_EQ(seen, written);
  }
}

TEST_F(LineReaders, BeginsWithTheOlderFile) {
  put("log.1", "a\nb\ntorn");
  put("log", "c\n");
  LineReader reader(folder_ / "log");
  EXPECT_EQ(read(reader), (Lines{"a", "b", "torn", "c"}));
  LineReader newer(folder_ / "log", {.with_older = false});
  EXPECT_EQ(read(newer), Lines{"c"});
}

TEST_F(LineReaders, GoesOnWithWhatIsThereAfterSeveralRotations) {
  AppendFile file(folder_ / "log");
  LineReader reader(file.path());
  file.append("a\n");
  EXPECT_EQ(read(reader), Lines{"a"});
  for (const char* line : {"b\n", "c\n", "d\n"}) {
    file.rotate();
    file.append(line);
  }
  // "b" is gone.
  EXPECT_EQ(read(reader), (Lines{"c", "d"}));
}

TEST_F(LineReaders, RefusesWhatIsNoFile) {
  std::filesystem::create_directory(folder_ / "log");
  LineReader reader(folder_ / "log", {.with_older = false});
  EXPECT_THROW(reader.next(), Error);
}

}  // namespace
}  // namespace trireme::launch
