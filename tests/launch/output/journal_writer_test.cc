#include "trireme/launch/output/output.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/journal/event.h"

namespace trireme::launch {
namespace {

class JournalWriters : public ::testing::Test {
 protected:
  static std::vector<LogLine> line(const std::string& text) { return {{.epoch = 1, .text = text}}; }
  std::string content(const std::string& name = "rank-00000.log") const {
    return read_file(folder_ / "run/logs" / name);
  }

  harness::TemporaryFolder folder_;
};

TEST_F(JournalWriters, WritesEachFile) {
  JournalWriter journal(folder_ / "run");
  journal.write("rank-00000.log", line("zero"));
  journal.write("rank-00001.log", line("one"));
  journal.write(Event{.kind = EventKind::kStart, .epoch = 1});
  journal.finish();
  EXPECT_NE(content().find("out| zero"), std::string::npos);
  EXPECT_NE(content("rank-00001.log").find("out| one"), std::string::npos);
  EXPECT_EQ(read_events(folder_ / "run").events.size(), 1u);
  EXPECT_TRUE(journal.take_problems().empty());
}

TEST_F(JournalWriters, TellsOnceWhyAFolderTakesNothing) {
  OutputFile(folder_ / "run").write("a file in the place of the folder");
  JournalWriter journal(folder_ / "run");
  for (const char* name : {"rank-00000.log", "rank-00001.log"}) journal.write(name, line("x"));
  journal.write(Event{.kind = EventKind::kStart});
  journal.finish();
  const std::vector<std::string> problems = journal.take_problems();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].starts_with("cannot write " + (folder_ / "run").string()));
}

TEST_F(JournalWriters, BeginsRemovedFilesAnewAndSaysSo) {
  JournalWriter journal(folder_ / "run");
  journal.write("rank-00000.log", line("before"));
  journal.write(Event{.kind = EventKind::kStart, .epoch = 1});
  journal.finish();
  std::filesystem::remove_all(folder_ / "run");
  journal.write("rank-00000.log", line("after"));
  journal.write(Event{.kind = EventKind::kEnd, .epoch = 1});
  journal.finish();
  EXPECT_NE(content().find("out| after"), std::string::npos);
  EXPECT_EQ(read_events(folder_ / "run").events.size(), 1u);
  const std::vector<std::string> problems = journal.take_problems();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("were removed while the run writes them"), std::string::npos);
}

TEST_F(JournalWriters, CountsWhatDoesNotFitWhileTheFolderIsSlow) {
  JournalWriter journal(folder_ / "run", /*max_bytes=*/4096);
  int64_t num_sent = 0;
  // Faster than a disk takes them, in which case some are lost, or not.
  for (; num_sent < 2000; ++num_sent) {
    journal.write("rank-00000.log", line(std::string(100, 'x')));
  }
  journal.finish();
  journal.write("rank-00000.log", line("last"));
  journal.finish();
  const std::string text = content();
  int64_t num_written = 0, num_lost = 0;
  for (size_t at = 0; (at = text.find("out| ", at)) != std::string::npos; ++at) ++num_written;
  for (size_t at = 0; (at = text.find("WARNING: ", at)) != std::string::npos; ++at) {
    num_lost += std::stoll(text.substr(at + 9));
  }
  EXPECT_EQ(num_written + num_lost, num_sent + 1);
}

}  // namespace
}  // namespace trireme::launch
