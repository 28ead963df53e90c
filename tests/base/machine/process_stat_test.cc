#include "trireme/base/machine/machine.h"

#include <csignal>
#include <ctime>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {
namespace {

TEST(ProcessStat, ShowsThisProcessRunningAndItsTime) {
  const auto before = process_stat(getpid());
  ASSERT_TRUE(before);
  EXPECT_EQ(before->state, 'R');
  EXPECT_EQ(before->parent, getppid());
  EXPECT_GT(before->start, 0u);
  // Until the kernel has charged a few ticks.
  std::optional<ProcessStat> after;
  do after = process_stat(getpid());
  while (after && after->cpu_time < before->cpu_time + std::chrono::milliseconds(20));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->start, before->start);
}

TEST(ProcessStat, TellsStoppedEndedAndMissingProcesses) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_GT(child, 0);
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(process_stat(child)->state, 'T');
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_stat(child)->state, 'Z');
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(process_stat(child));
  EXPECT_FALSE(process_stat(-1));
}

TEST(ProcessStat, PeakMemoryGrowsWithWhatIsTouched) {
  constexpr size_t kBytes = size_t{64} << 20;
  const int64_t before = peak_resident_bytes();
  EXPECT_GT(before, 0);
  const std::vector<char> touched(kBytes + static_cast<size_t>(before), 1);
  EXPECT_GE(peak_resident_bytes(), static_cast<int64_t>(touched.size()));
}

}  // namespace
}  // namespace trireme
