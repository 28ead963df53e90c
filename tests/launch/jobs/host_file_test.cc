#include "trireme/launch/jobs/host_file.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using Hosts = std::vector<JobHost>;

class HostFile : public testing::Test {
 protected:
  std::string file(const std::string& text) {
    const auto path = folder_.path() / "hosts";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  harness::TemporaryFolder folder_;
};

TEST_F(HostFile, CountsARepeatedHost) {
  EXPECT_EQ(read_host_file("FILE", file("b\na\nb\n\n")), (Hosts{{"b", 2}, {"a", 1}}));
}

TEST_F(HostFile, ReadsOpenMpisSlotsAndComments) {
  EXPECT_EQ(read_host_file("FILE", file("# ours\r\n a slots=4 max_slots=8 # big\r\nb\nc 2")),
            (Hosts{{"a", 4}, {"b", 1}, {"c", 2}}));
}

TEST_F(HostFile, NamesTheLineThatItCannotRead) {
  for (const std::string line :
       {"a slots=x", "a slots=-1", "a b", "a slots", "a port=22", "a slots=9999999", "a slots="}) {
    EXPECT_ERROR(ConfigError, read_host_file("FILE", file("n\n" + line)),
                 "has line 2 \"" + line + "\"; expected HOST");
  }
  EXPECT_ERROR(ConfigError, read_host_file("FILE", file("a\033[2J\n")), "control characters");
  EXPECT_ERROR(ConfigError, read_host_file("FILE", file(std::string(256, 'a'))), "255 bytes");
  EXPECT_ERROR(ConfigError, read_host_file("FILE", file("# none\n")), "has no host");
}

TEST_F(HostFile, NamesTheVariableOfAFileThatIsMissing) {
  EXPECT_ERROR(ConfigError, read_host_file("PBS_NODEFILE", "/nowhere/hosts"),
               "environment variable PBS_NODEFILE is \"/nowhere/hosts\": ");
  EXPECT_ERROR(ConfigError, read_host_file("PBS_NODEFILE", "/dev/zero"), "PBS_NODEFILE");
}

TEST_F(HostFile, RefusesMoreThanAHundredThousandHosts) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "n" + std::to_string(i) + "\n";
  EXPECT_EQ(read_host_file("FILE", file(text)).size(), 100'000U);
  EXPECT_ERROR(ConfigError, read_host_file("FILE", file(text + "m\n")), "more than 100000 hosts");
}

TEST_F(HostFile, CountsHostsInVariables) {
  EXPECT_EQ(count_hosts("HOSTS", " a a b "), (Hosts{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(count_host_pairs("HOSTS", "a 2 b 10 "), (Hosts{{"a", 2}, {"b", 10}}));
  EXPECT_ERROR(ConfigError, count_hosts("HOSTS", " "), "HOSTS has no host");
  EXPECT_ERROR(ConfigError, count_host_pairs("HOSTS", "a 2 b"), "HOSTS has \"\" behind host b");
  EXPECT_ERROR(ConfigError, count_host_pairs("HOSTS", "a b"), "HOSTS has \"b\" behind host a");
}

TEST_F(HostFile, FindsThisHostByItsWholeOrItsShortName) {
  const Hosts hosts = {{"a.x", 1}, {"b", 1}, {"c.x", 1}, {"c.y", 1}, {"10.0.0.1", 1}};
  EXPECT_EQ(index_of_host("HOSTS", "v", hosts, "a.x"), 0);
  EXPECT_EQ(index_of_host("HOSTS", "v", hosts, "a"), 0);
  EXPECT_EQ(index_of_host("HOSTS", "v", hosts, "b.cluster"), 1);
  EXPECT_EQ(index_of_host("HOSTS", "v", hosts, "c.y"), 3);
  EXPECT_EQ(index_of_host("HOSTS", "v", hosts, "10.0.0.1"), 4);
  for (const std::string other : {"c", "d", "", "10.0.0.2"}) {
    EXPECT_ERROR(ConfigError, index_of_host("HOSTS", "v", hosts, other),
                 "HOSTS is \"v\" and does not name this host, \"" + other + "\"");
  }
}

}  // namespace
}  // namespace trireme::launch
