#include "trireme/watch/read/tail.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

class TailTest : public testing::Test {
 protected:
  void put(const std::string& text) { write_file_atomically(path_, text); }
  void append(const std::string& text) { OutputFile(path_, /*append=*/true).write(text); }
  Tail::Progress update(Tail& tail, uint64_t most_bytes = 1 << 20) {
    return tail.update(
        most_bytes, [this](std::string_view line) { lines_.emplace_back(line); },
        [this] { lines_.clear(); });
  }

  using Lines = std::vector<std::string>;
  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "metrics.jsonl";
  Lines lines_;
};

TEST_F(TailTest, FollowsAGrowingFileAndWaitsForATornLine) {
  Tail tail(path_);
  update(tail);
  EXPECT_TRUE(lines_.empty());
  put("a\nbb\ncc");
  update(tail);
  EXPECT_EQ(lines_, (Lines{"a", "bb"}));
  append("c\n");
  EXPECT_FALSE(update(tail).is_reset);
  EXPECT_EQ(lines_, (Lines{"a", "bb", "ccc"}));
  EXPECT_TRUE(tail.changed_at().has_value());
}

TEST_F(TailTest, BeginsAgainWhenTheFileWasCutReplacedOrWrittenAnew) {
  Tail tail(path_);
  put("a\nb\nc\n");
  update(tail);
  std::filesystem::resize_file(path_, 2);
  EXPECT_TRUE(update(tail).is_reset);
  EXPECT_EQ(lines_, (Lines{"a"}));
  put("x\ny\nz\n");  // another inode
  EXPECT_TRUE(update(tail).is_reset);
  EXPECT_EQ(lines_, (Lines{"x", "y", "z"}));
  // The same inode, cut and longer than before at the next look.
  OutputFile(path_).write("x\nY\nz\nw\n");
  EXPECT_TRUE(update(tail).is_reset);
  EXPECT_EQ(lines_, (Lines{"x", "Y", "z", "w"}));
}

TEST_F(TailTest, WhatWasReadStaysWhenTheFileGoes) {
  Tail tail(path_);
  put("a\n");
  update(tail);
  std::filesystem::remove(path_);
  EXPECT_FALSE(update(tail).is_reset);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(update(tail).is_reset);
  EXPECT_EQ(lines_, (Lines{"a"}));
}

TEST_F(TailTest, LinesThatAreTooLongAreLeftOutHoweverTheyCome) {
  put(std::string(100, 'x') + "\nok\n" + std::string(11, 'y') + "\n" + std::string(10, 'z') + "\n");
  for (const uint64_t piece : {uint64_t{1}, uint64_t{7}, uint64_t{1000}}) {
    Tail tail(path_, {.most_line_bytes = 10});
    lines_.clear();
    while (update(tail, piece).has_more) {
    }
    EXPECT_EQ(lines_, (Lines{"ok", std::string(10, 'z')})) << piece;
    EXPECT_EQ(tail.num_too_long(), 2) << piece;
  }
}

}  // namespace
}  // namespace trireme::watch
