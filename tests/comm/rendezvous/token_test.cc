#include "trireme/comm/rendezvous/rendezvous_variables.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

const std::string kSecret = "three banks of oars, one hull";

class Token : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    unsetenv("TRIREME_TOKEN");
    unsetenv("TRIREME_TOKEN_FILE");
  }
  std::string write(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ / "token";
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), mode);
    setenv("TRIREME_TOKEN_FILE", path.c_str(), 1);
    return path;
  }
  const harness::TemporaryFolder folder_;
};

TEST_F(Token, IsEmptyWhereNoneIsSet) {
  EXPECT_EQ(job_token(), "");
  setenv("TRIREME_TOKEN", "", 1);
  setenv("TRIREME_TOKEN_FILE", "", 1);
  EXPECT_EQ(job_token(), "");
}

TEST_F(Token, ComesFromTheEnvironmentBeforeAFile) {
  write("another one of enough letters");
  setenv("TRIREME_TOKEN", kSecret.c_str(), 1);
  EXPECT_EQ(job_token(), kSecret);
}

TEST_F(Token, ComesFromAFileWithoutTheLinesEnd) {
  write(kSecret + "\n");
  EXPECT_EQ(job_token(), kSecret);
  write("\n  " + kSecret + " \r\n", 0400);
  EXPECT_EQ(job_token(), kSecret);
}

TEST_F(Token, AFileThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0666, 0610}) {
    write(kSecret, mode);
    EXPECT_ERROR(ConfigError, job_token(), "lets others in; expected 0600: chmod 600");
  }
}

TEST_F(Token, AFileOfAnotherUserIsRefused) {
  // Root can give a file away; others have root's.
  const bool is_root = geteuid() == 0;
  const std::string path = is_root ? write(kSecret) : "/etc/passwd";
  if (is_root) {
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  }
  setenv("TRIREME_TOKEN_FILE", path.c_str(), 1);
  EXPECT_ERROR(ConfigError, job_token(),
               concat("belongs to user ", is_root ? 65534 : 0, "; expected this user's, "));
}

TEST_F(Token, WhatIsNoFileIsRefusedAtOnce) {
  setenv("TRIREME_TOKEN_FILE", (folder_ / "missing").c_str(), 1);
  EXPECT_ERROR(ConfigError, job_token(), "No such file or directory; make one with");
  setenv("TRIREME_TOKEN_FILE", folder_.path().c_str(), 1);
  EXPECT_ERROR(ConfigError, job_token(), "which is not a file");
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  setenv("TRIREME_TOKEN_FILE", pipe.c_str(), 1);
  EXPECT_ERROR(ConfigError, job_token(), "which is not a file");
}

TEST_F(Token, ShortAndEndlessOnesAreRefusedUnseen) {
  setenv("TRIREME_TOKEN", "fifteen letters", 1);
  EXPECT_ERROR(ConfigError, job_token(),
               "TRIREME_TOKEN holds 15 characters; expected a token of 16");
  EXPECT_FALSE(contains(error_of<ConfigError>([] { job_token(); }), "fifteen letters"));
  unsetenv("TRIREME_TOKEN");
  write("");
  EXPECT_ERROR(ConfigError, job_token(), "holds 0 characters");
  write(std::string(1 << 20, 'x'));
  EXPECT_ERROR(ConfigError, job_token(), "holds more than 4096 characters");
}

}  // namespace
}  // namespace trireme::comm
