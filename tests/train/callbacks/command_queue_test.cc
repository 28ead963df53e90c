#include "trireme/train/callbacks/event_commands.h"

#include <csignal>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

constexpr std::chrono::milliseconds kLong = std::chrono::minutes(2);

TEST(CommandQueue, GivesInputAndVariablesInOrder) {
  const harness::TemporaryFolder folder;
  CommandQueue queue(kLong);
  const std::string file = (folder / "out").string();
  for (const char* name : {"first", "second"}) {
    queue.add({.name = name,
               .command = "{ echo $NAME $((1 + 1)); cat; } >> \"$FILE\"",
               .input = std::string(name) + " input\n",
               .variables = {std::string("NAME=") + name, "FILE=" + file}});
  }
  queue.finish();
  EXPECT_EQ(queue.take_failures(), std::vector<std::string>());
  EXPECT_EQ(read_file(file), "first 2\nfirst input\nsecond 2\nsecond input\n");
}

// A program in it would wait for the other ranks.
TEST(CommandQueue, MakesNoCommandARank) {
  const harness::TemporaryFolder folder;
  const std::string file = (folder / "out").string();
  for (const char* name : {"RANK", "WORLD_SIZE", "TRIREME_ERROR_FD"}) setenv(name, "7", 1);
  CommandQueue queue(kLong);
  queue.add(
      {.name = "a", .command = "echo \"$RANK,$WORLD_SIZE,$TRIREME_ERROR_FD,$HOME\" > " + file});
  queue.finish();
  for (const char* name : {"RANK", "WORLD_SIZE", "TRIREME_ERROR_FD"}) unsetenv(name);
  const char* const home = std::getenv("HOME");
  EXPECT_EQ(read_file(file), std::string(",,,") + (home != nullptr ? home : "") + "\n");
}

TEST(CommandQueue, KillsTheCommandWithItsChildrenWhenItsProcessIsKilled) {
  const harness::TemporaryFolder folder;
  const std::filesystem::path file = folder / "child";
  const pid_t owner = fork();
  if (owner == 0) {
    CommandQueue queue(kLong);
    queue.add({.name = "a",
               .command = "sleep 1000 & echo $! > " + file.string() + ".new; mv " + file.string() +
                          ".new " + file.string() + "; wait"});
    while (true) pause();
  }
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto child = static_cast<pid_t>(std::stol(read_file(file)));
  EXPECT_EQ(kill(child, 0), 0);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  // ctest bounds it.
  while (kill(child, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(CommandQueue, SaysHowACommandFailed) {
  CommandQueue queue(kLong);
  queue.add({.name = "a", .command = "exit 3"});
  queue.add({.name = "b", .command = "kill -9 $$"});
  queue.add({.name = "c", .command = "true"});
  queue.finish();
  EXPECT_EQ(queue.take_failures(),
            (std::vector<std::string>{"a ended with code 3", "b was ended by signal 9"}));
  EXPECT_TRUE(queue.take_failures().empty());
}

// The input is larger than a pipe holds.
TEST(CommandQueue, ACommandNeedNotReadItsInput) {
  CommandQueue queue(kLong);
  queue.add({.name = "deaf", .command = "true", .input = std::string(1 << 20, 'x')});
  queue.add(
      {.name = "counts", .command = "test $(wc -c) = 1048576", .input = std::string(1 << 20, 'x')});
  queue.finish();
  EXPECT_TRUE(queue.take_failures().empty());
}

TEST(CommandQueue, KillsWhatTakesTooLongWithItsChildren) {
  const harness::TemporaryFolder folder;
  CommandQueue queue(std::chrono::seconds(1));
  queue.add({.name = "slow", .command = "sleep 1000 & sleep 1000"});
  queue.finish();
  EXPECT_EQ(queue.take_failures(),
            std::vector<std::string>{"slow was killed after 1 s (command.timeout_seconds)"});
}

TEST(CommandQueue, DropsWhatItCannotKeepUpWith) {
  CommandQueue queue(kLong);
  queue.add({.name = "blocks", .command = "sleep 1000"});
  for (size_t i = 0; i < CommandQueue::kMaxWaiting + 2; ++i) {
    queue.add({.name = "waits", .command = "true"});
  }
  const auto failures = queue.take_failures();
  ASSERT_GE(failures.size(), 1U);
  EXPECT_EQ(failures.front(), "waits was left out: 100 commands wait already");
}  // the destructor kills the first

}  // namespace
}  // namespace trireme::train
