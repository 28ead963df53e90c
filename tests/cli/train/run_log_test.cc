#include "trireme/cli/train/run_log.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/launch/journal/line_file.h"

namespace trireme::cli {
namespace {

std::vector<launch::LogLine> lines_in(const std::filesystem::path& folder) {
  std::vector<launch::LogLine> lines;
  launch::LineReader reader(folder / "logs" / "rank-00000.log");
  while (const auto text = reader.next()) {
    const auto line = launch::parse_log_line(*text);
    if (line) lines.push_back(*line);
  }
  return lines;
}

TEST(RunLog, HasWhatWasShownBeforeAndAfterTheStart) {
  const harness::TemporaryFolder folder;
  RunLog log(folder.path());
  log.add("device  cpu");
  EXPECT_TRUE(lines_in(folder.path()).empty());
  log.start(2, 50);
  log.set_step(51);
  log.add("two\nlines");
  log.add("trireme: failed", launch::LogStream::kErr);
  const std::vector<launch::LogLine> lines = lines_in(folder.path());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].text, "device  cpu");
  EXPECT_EQ(lines[0].epoch, 2);
  EXPECT_EQ(lines[1].text, "two lines");
  EXPECT_EQ(lines[1].step, 51);
  EXPECT_EQ(lines[1].stream, launch::LogStream::kOut);
  EXPECT_EQ(lines[2].stream, launch::LogStream::kErr);
}

TEST(RunLog, HoldsSoMuchBeforeTheStart) {
  const harness::TemporaryFolder folder;
  RunLog log(folder.path());
  for (size_t i = 0; i < RunLog::kMostHeld + 50; ++i) log.add("line");
  log.start(1, 0);
  EXPECT_EQ(lines_in(folder.path()).size(), RunLog::kMostHeld);
}

TEST(RunLog, OfARunThatWasRefusedIsNone) {
  const harness::TemporaryFolder folder;
  { RunLog(folder.path()).add("refused"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RunLog, NeverMakesALostFolderAgain) {
  const harness::TemporaryFolder folder;
  const auto run = folder / "run";
  std::filesystem::create_directory(run);
  RunLog log(run);
  log.start(1, 0);
  std::filesystem::remove_all(run);
  log.add("on");
  EXPECT_FALSE(std::filesystem::exists(run));
}

}  // namespace
}  // namespace trireme::cli
