#include "trireme/launch/inject/network_fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string command_error(const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit = 20s) {
  try {
    run_command(arguments, limit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Command, ReturnsWhatTheProgramPrints) {
  EXPECT_EQ(run_command({"printf", "a b\n\n"}), "a b");
  // Arguments are no shell's words.
  EXPECT_EQ(run_command({"printf", "%s", "$(id); *"}), "$(id); *");
  EXPECT_EQ(run_command({"cat"}), "");  // nothing to read
}

TEST(Command, LongOutputIsCut) {
  EXPECT_EQ(run_command({"head", "-c", "100000", "/dev/zero"}).size(), size_t{64} << 10);
}

TEST(Command, FailuresAreOneLine) {
  EXPECT_THAT(command_error({"ls", "/no/such/file"}), HasSubstr("ls /no/such/file: "));
  EXPECT_THAT(command_error({"ls", "/no/such/file"}), HasSubstr("No such file"));
  EXPECT_EQ(command_error({"false"}), "false: failed");
  EXPECT_THAT(command_error({"no-such-program"}), HasSubstr("no program no-such-program"));
}

TEST(Command, ThatTakesTooLongIsKilled) {
  EXPECT_THAT(command_error({"sleep", "1000"}, 50ms), HasSubstr("takes longer than 50 ms"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

}  // namespace
}  // namespace trireme::launch
