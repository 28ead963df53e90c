#include "trireme/comm/rendezvous/launcher_values.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using Names = std::vector<std::string>;

TEST(LauncherValues, ExpandSlurmsHosts) {
  const std::map<std::string, Names> lists = {
      {"one", {"one"}},
      {"one,two", {"one", "two"}},
      {"n[7]", {"n7"}},
      {"node[003-005,12],login1", {"node003", "node004", "node005", "node12", "login1"}},
      {"n[07,09]-ib,m", {"n07-ib", "n09-ib", "m"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"n[098-101]", {"n098", "n099", "n100", "n101"}},
      {"r[1-2]n[01-02].x", {"r1n01.x", "r1n02.x", "r2n01.x", "r2n02.x"}},
      {"node[01-03,7],gpu1", {"node01", "node02", "node03", "node7", "gpu1"}},
      {"[1-2]", {"1", "2"}}};
  for (const auto& [list, hosts] : lists) EXPECT_EQ(expand_hosts("HOSTS", list), hosts) << list;
}

TEST(LauncherValues, RefuseMalformedHostLists) {
  for (const std::string list :
       {"",      ",",      "a,",    ",a",     "a,,b",          "n[",      "n[]",
        "n[1",   "n[1-]",  "n[-1]", "n[2-1]", "n[1,]",         "n[a]",    "n]",
        "n[1]]", "n[[1]]", "a b",   "a\nb",   "n[1111111111]", "n[1-2-3]"}) {
    EXPECT_ERROR(ConfigError, expand_hosts("HOSTS", list), "HOSTS is \"");
  }
  EXPECT_ERROR(ConfigError, expand_hosts("HOSTS", std::string(256, 'n')), "expected hosts as in");
}

TEST(LauncherValues, BoundTheNumberOfHosts) {
  EXPECT_EQ(expand_hosts("HOSTS", "n[1-100000]").size(), kMaxJobHosts);
  for (const std::string list : {"n[1-100001]", "n[0-999999999]", "a,n[1-100000]",
                                 "a[1-400]b[1-400]", "a[1-99]b[1-99]c[1-99]d[1-99]"}) {
    EXPECT_ERROR(ConfigError, expand_hosts("HOSTS", list), "more than 100000 hosts");
  }
  EXPECT_EQ(expand_counts("COUNTS", "8(x100000)").size(), kMaxJobHosts);
  EXPECT_ERROR(ConfigError, expand_counts("COUNTS", "1,8(x100000)"), "more than 100000 hosts");
}

TEST(LauncherValues, ExpandSlurmsCounts) {
  EXPECT_EQ(expand_counts("COUNTS", "2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("COUNTS", "0"), std::vector<int>{0});
  for (const std::string list : {"", "two", "2(x", "2(x3", "2(x)", "2(x0)", "2(x-1)", "2,,1", "2,",
                                 "-1", "2 ", "9999999999"}) {
    EXPECT_ERROR(ConfigError, expand_counts("COUNTS", list), "COUNTS is \"" + list + "\"");
  }
}

TEST(LauncherValues, WholeNumbersAreNamedWithWhoSetsThem) {
  EXPECT_EQ(whole_number("SIZE", "12", 1, "srun has"), 12);
  EXPECT_ERROR(ConfigError, whole_number("SIZE", "", 1, "srun has"), "SIZE is not set");
  for (const std::string value : {"two", "0", "1x", " 1", "99999999999"}) {
    EXPECT_ERROR(ConfigError, whole_number("SIZE", value, 1, "srun has"),
                 "environment variable SIZE is \"" + value +
                     "\"; expected a whole number from 1 on (srun has set it)");
  }
}

TEST(LauncherValues, PortsOfJobsDiffer) {
  EXPECT_EQ(port_of_job("4711.0"), port_of_job("4711.0"));
  EXPECT_NE(port_of_job("4711.0"), port_of_job("4711.1"));
  for (const std::string job : {"", "1", "4711.0"}) {
    EXPECT_GE(port_of_job(job), 16384);
    EXPECT_LT(port_of_job(job), 32768);
  }
}

}  // namespace
}  // namespace trireme::comm
