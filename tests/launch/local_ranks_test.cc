#include "trireme/launch/local_ranks.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A rank as a shell script; "$DIR" is the test's folder.
class LocalRanks : public ::testing::Test {
 protected:
  LocalRanksOptions script(int num_ranks, const std::string& text,
                           std::chrono::milliseconds grace = 20s) const {
    return {.num_ranks = num_ranks,
            .command = {"/bin/sh", "-c", "DIR='" + folder_.path().string() + "'\n" + text},
            .grace = grace};
  }
  RankExit run(int num_ranks, const std::string& text,
               std::chrono::milliseconds grace = 20s) const {
    return run_local_ranks(script(num_ranks, text, grace));
  }
  std::string written(const std::string& name) const { return read_file(folder_ / name); }

  // Waits without a bound of its own (ctest has one) until every file is there.
  void await(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      while (!fs::exists(folder_ / name)) std::this_thread::sleep_for(5ms);
    }
  }

  // A launcher in a process of its own; its exit code is the first failing rank's.
  pid_t start_launcher(const LocalRanksOptions& options) const {
    const pid_t child = fork();
    if (child == 0) {
      const RankExit exit = run_local_ranks(options);
      _exit(exit.rank < 0 ? 0 : (exit.signal != 0 ? 100 + exit.signal : exit.code));
    }
    return child;
  }

  harness::TemporaryFolder folder_;
};

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::ptrdiff_t num_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// Writes this rank's process id; whoever waits for the file sees it whole.
const std::string kReady = "echo $$ > $DIR/new.$RANK; mv $DIR/new.$RANK $DIR/pid.$RANK\n";

TEST_F(LocalRanks, GivesEveryRankTorchrunsVariables) {
  const RankExit exit =
      run(3,
          "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE > $DIR/env.$RANK\n"
          "test -n \"$MASTER_ADDR\" -a -n \"$MASTER_PORT\" || exit 9\n"
          "test \"$OMP_NUM_THREADS\" -ge 1 || exit 9\n");
  EXPECT_EQ(exit.rank, -1);
  EXPECT_EQ(written("env.0"), "0 3 0 3\n");
  EXPECT_EQ(written("env.1"), "1 3 1 3\n");
  EXPECT_EQ(written("env.2"), "2 3 2 3\n");
}

TEST_F(LocalRanks, NamesTheJobTheSameOnAllRanksAndAnewForEachLaunch) {
  const std::string both = "test \"$TRIREME_JOB\" = \"$TRIREME_LAUNCH\" || exit 9; ";
  ASSERT_EQ(run(2, both + "echo $TRIREME_JOB > $DIR/first.$RANK").rank, -1);
  ASSERT_EQ(run(2, both + "echo $TRIREME_JOB > $DIR/second.$RANK").rank, -1);
  const std::string process = std::to_string(getpid()) + "-";
  ASSERT_TRUE(written("first.0").starts_with(process)) << written("first.0");
  EXPECT_GE(written("first.0").size(), process.size() + 32) << "128 random bits";
  EXPECT_EQ(written("first.0"), written("first.1"));
  EXPECT_NE(written("first.0"), written("second.0"));
}

TEST_F(LocalRanks, GivesAFileToMeetOverThatGoesWithTheLaunch) {
  ASSERT_EQ(
      run(2, "echo ${TRIREME_STORE#file:} > $DIR/store.$RANK; touch ${TRIREME_STORE#file:}").rank,
      -1);
  std::string path = written("store.0");
  EXPECT_EQ(path, written("store.1"));
  ASSERT_GT(path.size(), 1u);
  path.pop_back();
  EXPECT_TRUE(fs::path(path).is_absolute());
  EXPECT_FALSE(fs::exists(path));
  setenv("MASTER_ADDR", "10.0.0.1", 1);
  EXPECT_EQ(run(2, "test -z \"$TRIREME_STORE\"").rank, -1);
  unsetenv("MASTER_ADDR");
}

TEST_F(LocalRanks, KeepsWhatAnotherLauncherSaidOfItsRanksToItself) {
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  const RankExit exit = run(2, "env | grep TORCHELASTIC_ && exit 9; exit 0");
  unsetenv("TORCHELASTIC_RUN_ID");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_EQ(exit.rank, -1);
}

TEST_F(LocalRanks, LeavesTheThreadsAndTheAddressThatTheUserSet) {
  setenv("OMP_NUM_THREADS", "7", 1);
  setenv("MASTER_PORT", "1234", 1);
  const RankExit exit = run(2, "test $OMP_NUM_THREADS = 7 -a $MASTER_PORT = 1234");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("MASTER_PORT");
  EXPECT_EQ(exit.rank, -1);
}

TEST_F(LocalRanks, PassesArgumentsUnchanged) {
  LocalRanksOptions options = script(1, "printf '%s|' \"$@\" > $DIR/arguments");
  options.command.insert(options.command.end(), {"sh", "two words", "", "$HOME"});
  EXPECT_EQ(run_local_ranks(options).rank, -1);
  EXPECT_EQ(written("arguments"), "two words||$HOME|");
}

TEST_F(LocalRanks, ReturnsTheExitCodeOfTheRankThatFailedFirst) {
  const RankExit exit = run(3,
                            "test $RANK = 1 && { touch $DIR/failed; exit 7; }\n"
                            "until test -e $DIR/failed; do sleep 0.01; done; sleep 0.5; exit 8");
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, 7);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(describe(exit), "rank 1 exited with code 7");
}

TEST_F(LocalRanks, BlamesTheCauseAndNotTheRankThatOnlyLostItsPeers) {
  const RankExit exit = run(2,
                            "test $RANK = 0 && { touch $DIR/lost; exit 3; }\n"
                            "until test -e $DIR/lost; do sleep 0.01; done; sleep 0.3; exit 1");
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, 1);
}

TEST_F(LocalRanks, DescribesAKilledRankWithItsSignal) {
  const RankExit exit = run(2, "test $RANK = 1 && kill -9 $$; exit 3");
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, -1);
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_EQ(describe(exit),
            "rank 1 was killed by signal 9 (Killed, by someone or for lack of memory)");
}

TEST_F(LocalRanks, ReturnsTheLineThatARankLeftInItsErrorDescriptor) {
  const RankExit exit = run(2,
                            "test $RANK = 1 || exit 0\n"
                            "eval \"echo 'width is 7; expected 8' >&$TRIREME_ERROR_FD\"; exit 2");
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, 2);
  EXPECT_EQ(exit.message, "width is 7; expected 8");
  EXPECT_EQ(describe(exit), "width is 7; expected 8");
}

TEST_F(LocalRanks, SaysWhyAProgramCannotBeStarted) {
  const RankExit exit = run_local_ranks({.num_ranks = 2, .command = {"/no/such/program"}});
  EXPECT_GE(exit.rank, 0);
  EXPECT_EQ(exit.code, 127);
  EXPECT_EQ(describe(exit), "cannot start /no/such/program: No such file or directory");
}

TEST_F(LocalRanks, StopsTheOthersWhenTheGraceIsOver) {
  const RankExit exit = run(3,
                            kReady +
                                "test $RANK != 2 && exec sleep 1000\n"
                                "until test -e $DIR/pid.0 -a -e $DIR/pid.1; do sleep 0.01; "
                                "done; exit 5",
                            50ms);
  EXPECT_EQ(exit.rank, 2);
  EXPECT_EQ(exit.code, 5);
  for (const char* name : {"pid.0", "pid.1"}) {
    EXPECT_EQ(kill(std::stoi(written(name)), 0), -1) << "rank " << name << " still runs";
  }
}

TEST_F(LocalRanks, LetsTheOthersEndByThemselvesWithinTheGrace) {
  const RankExit exit = run(2, "test $RANK = 1 && exit 5; sleep 0.3; touch $DIR/ended; exit 3");
  EXPECT_EQ(exit.rank, 1);
  EXPECT_TRUE(fs::exists(folder_ / "ended"));
}

TEST_F(LocalRanks, GoOnWithoutRanksThatAreExpendable) {
  LocalRanksOptions options = script(4, R"(
    [ $RANK = 0 ] && echo >&$TRIREME_READY_FD && touch $DIR/ready
    while [ ! -e $DIR/ready ]; do sleep 0.01; done
    [ $RANK = 3 ] && kill -9 $$
    [ $RANK = 2 ] && { echo 'no disk' >&$TRIREME_ERROR_FD; exit 2; }
    while [ ! -e $DIR/told ]; do sleep 0.01; done)");
  options.num_expendable = 2;
  std::vector<std::string> told;
  options.on_expended = [&](const RankExit& exit) {
    told.push_back(describe(exit));
    if (told.size() == 2) std::ofstream(folder_ / "told") << "both";
  };
  EXPECT_EQ(run_local_ranks(options).rank, -1);
  std::ranges::sort(told);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0], "no disk");
  EXPECT_EQ(told[1].substr(0, 32), "rank 3 was killed by signal 9 (K");
}

// What it had is nowhere else yet.
TEST_F(LocalRanks, EndWhenAnExpendableOneFailsBeforeTheyAreReady) {
  LocalRanksOptions options = script(2, "[ $RANK = 1 ] && exit 2; sleep 60", 100ms);
  options.num_expendable = 1;
  options.on_expended = [](const RankExit& exit) { ADD_FAILURE() << "told of " << exit.rank; };
  const RankExit exit = run_local_ranks(options);
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, 2);
}

TEST_F(LocalRanks, EndWhenOneFailsThatIsNotExpendable) {
  LocalRanksOptions options = script(3, "[ $RANK = 1 ] && exit 4; sleep 60", 100ms);
  options.num_expendable = 1;
  options.on_expended = [](const RankExit& exit) { ADD_FAILURE() << "told of " << exit.rank; };
  const RankExit exit = run_local_ranks(options);
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.code, 4);
}

TEST_F(LocalRanks, PassesTerminationOnToTheRanks) {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "TERM"}, std::pair{SIGINT, "INT"}}) {
    const std::string trap = concat("trap 'touch $DIR/", name, ".$RANK; exit 0' ", name, "\n");
    const pid_t launcher =
        start_launcher(script(2, trap + kReady + "while :; do sleep 0.01; done"));
    await({"pid.0", "pid.1"});
    kill(launcher, signal);
    EXPECT_EQ(exit_code(launcher), 0);
    EXPECT_TRUE(fs::exists(folder_ / concat(name, ".0")));
    EXPECT_TRUE(fs::exists(folder_ / concat(name, ".1")));
    fs::remove(folder_ / "pid.0");
    fs::remove(folder_ / "pid.1");
  }
}

TEST_F(LocalRanks, EndsWithoutFailureWhenTheSignalFindsRanksThatDoNotHandleItYet) {
  // Rank 0 handles it, then loses rank 1, which does not.
  const pid_t launcher =
      start_launcher(script(2, "test $RANK = 0 && trap 'sleep 0.2; exit 3' TERM\n" + kReady +
                                   "while :; do sleep 0.01; done"));
  await({"pid.0", "pid.1"});
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code(launcher), 0);
}

TEST_F(LocalRanks, RanksDoNotOutliveAKilledLauncher) {
  const pid_t launcher = start_launcher(script(2, kReady + "exec sleep 1000"));
  await({"pid.0", "pid.1"});
  kill(launcher, SIGKILL);
  EXPECT_EQ(exit_code(launcher), -SIGKILL);
  for (const char* name : {"pid.0", "pid.1"}) {
    // Until ctest's timeout: gone, or a zombie that whoever adopted it has not collected.
    const fs::path process = "/proc/" + std::to_string(std::stoi(written(name)));
    const auto runs = [&] {
      std::ifstream stat(process / "stat");
      std::string id, program, state;
      return (stat >> id >> program >> state) && state != "Z";
    };
    while (runs()) std::this_thread::sleep_for(5ms);
  }
}

TEST_F(LocalRanks, LeavesNoZombieAndNoDescriptor) {
  const std::ptrdiff_t before = num_descriptors();
  run(3, "exit $RANK");
  run(2, "kill -9 $$");
  run_local_ranks({.num_ranks = 2, .command = {"/no/such/program"}});
  EXPECT_EQ(num_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(LocalRanks, RestoresTheSignalMask) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  run(1, "exit 0");
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
  }
}

TEST_F(LocalRanks, KnowWhatNohupHasThemIgnore) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  EXPECT_TRUE(is_ignored(SIGHUP));
  std::signal(SIGHUP, [](int) {});
  EXPECT_FALSE(is_ignored(SIGHUP));
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_FALSE(is_ignored(SIGHUP));
  std::signal(SIGHUP, before);
}

}  // namespace
}  // namespace trireme::launch
