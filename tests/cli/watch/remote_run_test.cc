#include "trireme/cli/watch/remote_run.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

TEST(RemoteRun, IsAHostAndAFolderThatIsNotHere) {
  EXPECT_TRUE(is_remote_run("host:runs/x"));
  EXPECT_TRUE(is_remote_run("me@host.example:/runs/x"));
  for (const char* word : {"runs/x", "./a:b", ":x", "/runs/a:b"})
    EXPECT_FALSE(is_remote_run(word)) << word;
}

TEST(RemoteRun, TheCommandIsSafeForAShell) {
  EXPECT_EQ(
      tunnel_command("host:runs/x", 7117),
      "ssh -t -L 7117:127.0.0.1:7117 host 'trireme watch --no-browser --port 7117 -- runs/x'");
  EXPECT_EQ(tunnel_command("host:a b'c", 0),
            "ssh -t -L 7117:127.0.0.1:7117 host 'trireme watch --no-browser --port 7117 -- "
            "'\\''a b'\\''\\'\\'''\\''c'\\'''");
  for (const char* word : {"-oProxyCommand=x:y", "a b:c", "host:", "h;x:y", "host:a\nb"})
    EXPECT_THROW(tunnel_command(word, 1), ConfigError) << word;
}

}  // namespace
}  // namespace trireme::cli
