#include "trireme/launch/journal/log_line.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/launch/journal/morning.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

const std::string kTime = "2026-11-25T07:00:00.000000Z";

class LogFiles : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "logs" / rank_log_name(0); }
  std::string content(const std::string& suffix = "") const {
    return read_file(path().string() + suffix);
  }

  static LogLine line(int64_t epoch, int64_t step, const std::string& text) {
    return {kMorning, epoch, step, LogStream::kOut, text};
  }

  harness::TemporaryFolder folder_;
};

TEST_F(LogFiles, TakesAtMostTwoFilesOfTheSize) {
  LogWriter log(path(), {.max_bytes = 1000});
  for (int i = 0; i < 200; ++i) {
    log.write(line(1, i, "line " + std::to_string(i)));
  }
  EXPECT_EQ(harness::names_in(path().parent_path()).size(), 2u);
  EXPECT_LE(content().size(), 1000u + 200u);
  EXPECT_LE(content(".1").size(), 1000u + 200u);
  const std::string all = content(".1") + content();
  EXPECT_TRUE(all.ends_with("| line 199\n"));
  int64_t num_lines = 0;
  for (const char c : all) num_lines += c == '\n';
  const std::string first = "| line " + std::to_string(200 - num_lines) + "\n";
  EXPECT_NE(all.substr(0, 100).find(first), std::string::npos) << "a line is missing";
}

TEST_F(LogFiles, SaysHowManyLinesAFullDiskKeptOut) {
  LogWriter log(path());
  log.write(line(1, 1, "before"));
  {
    const harness::FileSizeLimit limit(50);
    EXPECT_FALSE(log.write(line(1, 2, "lost")));
    EXPECT_NE(log.take_problem(), "");
  }
  log.add_lost(1);  // on its way here
  EXPECT_TRUE(log.write(line(1, 3, "after")));
  const std::string text = content();
  EXPECT_TRUE(text.ends_with(kTime + " 1 3 agent| WARNING: 2 lines could not be written\n" + kTime +
                             " 1 3 out| after\n"))
      << text;
  EXPECT_EQ(log.take_problem(), "");
}

TEST_F(LogFiles, GoesOnBehindAnEarlierWriter) {
  LogWriter(path()).write(line(1, 1, "a"));
  LogWriter(path()).write(line(2, 2, "b"));
  EXPECT_EQ(content(), kTime + " 1 1 out| a\n" + kTime + " 2 2 out| b\n");
}

}  // namespace
}  // namespace trireme::launch
