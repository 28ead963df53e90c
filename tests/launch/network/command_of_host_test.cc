#include <gtest/gtest.h>

#include "trireme/launch/network/network.h"

namespace trireme::launch {
namespace {

using WordList = std::vector<std::string>;

const NetworkFile kThree{.hosts = {"paris", "lyon", "tokyo"}};

TEST(CommandOfHost, ReplacesTheWordsInBraces) {
  const NetworkOptions options{
      .network = kThree,
      .command = {"{host}", "a{index}b{hosts}", "{first}:29400", "{address}{address}", "{", "{}",
                  "{other}", "{hos", "{{host}}"}};
  EXPECT_EQ(command_of_host(options, 1),
            (WordList{"lyon", "a1b3", "10.231.80.1:29400", "10.231.80.210.231.80.2", "{", "{}",
                      "{other}", "{hos", "{lyon}"}));
}

TEST(WithHostVariables, SaysWhichHostThisIs) {
  const Environment given = {{"PATH", "/bin"},
                             {"PET_RDZV_ENDPOINT", "outer:1"},
                             {"PET_NNODES", "9"},
                             {"JOB_COMPLETION_INDEX", "4"}};
  EXPECT_EQ(with_host_variables(given, kThree, 2, "secret"),
            (Environment{{"PATH", "/bin"},
                         {"PET_NNODES", "3"},
                         {"PET_NODE_RANK", "2"},
                         {"PET_MASTER_ADDR", "10.231.80.1"},
                         {"PET_MASTER_PORT", "29400"},
                         {"TRIREME_TOKEN", "secret"}}));
}

TEST(WithHostVariables, KeepsTheUsersToken) {
  EXPECT_EQ(with_host_variables({{"TRIREME_TOKEN", "own"}}, kThree, 0, "x").at("TRIREME_TOKEN"),
            "own");
  EXPECT_FALSE(with_host_variables({{"TRIREME_TOKEN_FILE", "own"}}, kThree, 0, "x")
                   .contains("TRIREME_TOKEN"));
}

}  // namespace
}  // namespace trireme::launch
