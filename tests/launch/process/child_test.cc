#include "trireme/launch/process/child.h"

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

ExitStatus await(Child& child) {
  while (true) {  // ctest bounds it
    if (const auto status = child.reap()) return *status;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string read_all(const Descriptor& from) {
  std::string text;
  char buffer[256];
  for (ssize_t size = 0; (size = read(from.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

ChildOptions shell(const std::string& script) {
  return {.command = {"/bin/sh", "-c", script}, .environment = inherited_environment()};
}

TEST(Child, TellsExitCodesAndSignalsApart) {
  Child exits(shell("exit 7"), "a test");
  EXPECT_EQ(await(exits).code, 7);
  Child dies(shell("kill -9 $$"), "a test");
  const ExitStatus status = await(dies);
  EXPECT_EQ(status.code, -1);
  EXPECT_EQ(status.signal, SIGKILL);
}

TEST(Child, GetsItsVariablesAndNoOthers) {
  Pipe output = make_pipe("a test");
  ChildOptions options = shell("echo $MINE$HOME");
  options.environment = {{"MINE", "yes"}};
  options.output = output.write_end.get();
  Child child(options, "a test");
  output.write_end.close();
  EXPECT_EQ(read_all(output.read_end), "yes\n");
  await(child);
}

TEST(Child, GetsInheritedDescriptorsInOrderWhateverTheirNumbers) {
  Pipe first = make_pipe("a test");
  Pipe second = make_pipe("a test");
  ChildOptions options = shell("echo one >&3; echo two >&4");
  // The other way round than they were made, so that one is likely to be where the other goes.
  options.inherited = {second.write_end.get(), first.write_end.get()};
  Child child(options, "a test");
  first.write_end.close();
  second.write_end.close();
  EXPECT_EQ(read_all(second.read_end), "one\n");
  EXPECT_EQ(read_all(first.read_end), "two\n");
  await(child);
}

TEST(Child, GetsItsDescriptorsWhenFewMayBeOpen) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Pipe words = make_pipe("a test");
  ChildOptions options = shell("echo $(ulimit -n) >&3");
  options.inherited = {words.write_end.get()};
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Child child(options, "a test");
  setrlimit(RLIMIT_NOFILE, &before);
  words.write_end.close();
  EXPECT_EQ(read_all(words.read_end), "64\n");
  await(child);
}

TEST(Child, SaysThatItHasNoRoomForItsDescriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Pipe words = make_pipe("a test");
  ChildOptions options = shell("true");
  options.inherited = {words.write_end.get()};
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(words.write_end.get()) + 1;
  // The lower numbers are taken too.
  std::vector<Descriptor> all;
  while (true) {
    Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (one.get() > words.write_end.get()) break;
    all.push_back(std::move(one));
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Child child(options, "a test");
  setrlimit(RLIMIT_NOFILE, &before);
  words.write_end.close();
  EXPECT_EQ(read_all(words.read_end), "cannot start /bin/sh: Too many open files");
  EXPECT_EQ(await(child).code, 127);
}

TEST(Child, RunsOnItsCoresAlone) {
  const CoreSet all = allowed_cores();
  CoreSet one;
  for (size_t core = 0; one.none(); ++core) one.set(core, all.test(core));
  Pipe output = make_pipe("a test");
  ChildOptions options = shell("nproc");
  options.environment.erase("OMP_NUM_THREADS");
  options.output = output.write_end.get();
  options.cores = one;
  Child child(options, "a test");
  output.write_end.close();
  EXPECT_EQ(read_all(output.read_end), "1\n");
  await(child);
}

TEST(Child, SaysWhyAProgramCannotBeStarted) {
  Pipe words = make_pipe("a test");
  Child child({.command = {"/nowhere/to/be/found"}, .inherited = {words.write_end.get()}},
              "a test");
  words.write_end.close();
  EXPECT_EQ(read_all(words.read_end),
            "cannot start /nowhere/to/be/found: No such file or directory");
  EXPECT_EQ(await(child).code, 127);
}

TEST(Child, IsKilledWithItsOwner) {
  pid_t pid = 0;
  {
    const Child child(shell("sleep 1000"), "a test");
    pid = child.pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace trireme::launch
