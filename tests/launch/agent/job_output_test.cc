#include "trireme/launch/agent/job_output.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/journal/event.h"

namespace trireme::launch {
namespace {

class Shown final : public AgentObserver {
 public:
  void on_line(const std::string& line, bool) override { lines.push_back(line); }
  std::vector<std::string> lines;
};

TEST(JobOutput, HoldsForTheFolderWhatComesBeforeItIsKnown) {
  const harness::TemporaryFolder folder;
  const auto shown = std::make_shared<Shown>();
  JobOutput output("here", shown);
  output.add_output(0, LogStream::kOut, 1, 5, "early\n");
  output.write({.kind = EventKind::kStart, .epoch = 1, .text = "begins"});
  EXPECT_EQ(output.num_held_bytes(), 5);
  EXPECT_TRUE(output.holds_workers_output());
  output.set_folder(folder.path());
  output.finish();
  EXPECT_EQ(shown->lines, std::vector<std::string>{"early"});
  EXPECT_NE(read_file(folder / "logs/rank-00000.log").find("1 5 out| early"), std::string::npos);
  EXPECT_EQ(read_events(folder.path()).events.front().text, "begins");
}

TEST(JobOutput, ShowsRankZeroAndTheFirstErrorOfOthers) {
  const harness::TemporaryFolder folder;
  const auto shown = std::make_shared<Shown>();
  JobOutput output("here", shown);
  output.set_folder(folder.path());
  output.add_output(0, LogStream::kOut, 1, 1, "progress\n");
  output.add_output(1, LogStream::kOut, 1, 1, "chatter\n");
  output.add_exit(1, 1, 1, "rank 1 was killed by signal 9", /*lost_peer=*/false);
  output.flush();
  output.finish();
  ASSERT_EQ(shown->lines.size(), 2);
  EXPECT_EQ(shown->lines[0], "progress");
  EXPECT_NE(shown->lines[1].find("killed by signal 9"), std::string::npos);
}

TEST(JobOutput, LogsWhatTheAgentSays) {
  const harness::TemporaryFolder folder;
  const auto shown = std::make_shared<Shown>();
  JobOutput output("here", shown);
  output.set_folder(folder.path());
  output.say("run     epoch 1", /*epoch=*/1);
  output.finish();
  EXPECT_EQ(shown->lines, std::vector<std::string>{"run     epoch 1"});
  EXPECT_NE(read_file(folder / "logs/agent-here.log").find("agent| run     epoch 1"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::launch
