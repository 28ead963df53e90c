#include "trireme/launch/network/network_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHosts = "[network]\nhosts = [\"a\", \"b\", \"c\"]\n";

std::string error_of(const std::string& text) {
  return harness::message_of<ConfigError>([&] { parse_network(text, "wan.toml"); });
}

TEST(NetworkFile, TheExampleSaysWhatItsCommentsSay) {
  const NetworkFile network = parse_network(example_network(), "example");
  EXPECT_EQ(network.hosts, (std::vector<std::string>{"paris", "lyon", "tokyo"}));
  EXPECT_EQ(network.seed, 1);
  EXPECT_EQ(network.mtu, 1500);
  const comm::LinkShape usual{.rate = 10e6, .delay = 50ms, .loss = 0.001, .queue_bytes = 1e6};
  ASSERT_EQ(network.links.size(), 3);
  EXPECT_EQ(network.links[0],
            (NetworkFile::Link{0, 1, {.rate = 1e9, .delay = 3ms, .queue_bytes = 1e6}}));
  EXPECT_EQ(network.links[1], (NetworkFile::Link{0, 2, usual}));
  EXPECT_EQ(network.links[2], (NetworkFile::Link{1, 2, usual}));
}

TEST(NetworkFile, WithoutADefaultOnlyTheGivenPairsAreConnected) {
  const NetworkFile network = parse_network(
      std::string(kHosts) + "[[link]]\nbetween = [\"c\", \"a\"]\nrate = 8000\njitter_ms = 0.5\n",
      "wan.toml");
  ASSERT_EQ(network.links.size(), 1);
  EXPECT_EQ(network.links[0], (NetworkFile::Link{0, 2, {.rate = 8000, .jitter = 500us}}));
}

TEST(NetworkFile, ErrorsNameTheLineAndWhatIsAllowed) {
  const std::string hosts = kHosts;
  const std::string usual = hosts + "[default]\nrate = 1e6\n";
  const std::string link = usual + "[[link]]\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "wan.toml:1: network is missing; expected [network] with hosts"},
      {"network = 1", "wan.toml:1: network is 1; expected a table"},
      {"[netwrk]\n",
       "wan.toml:1: netwrk is not a key; did you mean \"network\"?; expected network, "
       "default or link"},
      {"[network]\n", "network.hosts is missing; expected names of hosts"},
      {"[network]\nhosts = [\"a\"]", "wan.toml:2: network.hosts has 1 names; expected 2 to 64"},
      {"[network]\nhosts = [\"a\", 1]", "network.hosts has 1; expected names of hosts"},
      {"[network]\nhosts = [\"a\", \"b c\"]",
       "network.hosts has \"b c\"; expected names of at most 32 letters, digits and hyphens"},
      {"[network]\nhosts = [\"a\", \"-b\"]", "network.hosts has \"-b\""},
      {"[network]\nhosts = [\"a\", \"a\"]", "network.hosts has \"a\" twice"},
      {hosts + "mtu = 10",
       "wan.toml:3: network.mtu is 10; expected at least 576 and at most 65535"},
      {hosts + "seed = -1", "network.seed is -1; expected at least 0"},
      {hosts + "seed = 1.5", "network.seed is 1.5; expected a whole number"},
      {hosts, "wan.toml: no two hosts are connected; expected [default]"},
      {hosts + "[default]\ndelay_ms = 1", "default.rate is missing; expected bits per second"},
      {hosts + "[default]\nrate = 0", "wan.toml:4: default.rate is 0; expected at least 1000"},
      {hosts + "[default]\nrate = nan", "default.rate is nan; expected at least 1000"},
      {hosts + "[default]\nrate = \"1e6\"", "default.rate is '1e6'; expected a number"},
      {usual + "delay_ms = -5", "wan.toml:5: default.delay_ms is -5; expected at least 0"},
      {usual + "jitter_ms = 1e9", "default.jitter_ms is 1000000000.0; expected at least 0"},
      {usual + "loss = 1", "default.loss is 1; expected at least 0 and at most 0.9"},
      {usual + "queue_bytes = -1", "default.queue_bytes is -1"},
      {usual + "los = 0", "default.los is not a key; did you mean \"loss\"?"},
      {usual + "[link]\nbetween = [\"a\", \"b\"]",
       "wan.toml:5: link is one table; expected [[link]], in double brackets"},
      {"link = [1]\n" + usual, "link has 1; expected [[link]] tables"},
      {link, "link.between is missing; expected names of hosts"},
      {link + "between = [\"a\"]", "link.between has 1 names; expected two"},
      {link + "between = [\"a\", \"d\"]",
       "wan.toml:6: link.between has the host \"d\", which network.hosts has not"},
      {link + "between = [\"a\", \"a\"]", "link.between has \"a\" twice; expected two hosts"},
      {link + "between = [\"a\", \"b\"]\n[[link]]\nbetween = [\"b\", \"a\"]",
       "wan.toml:8: link.between is the second link of b and a; expected one for each pair"},
      {hosts + "[[link]]\nbetween = [\"a\", \"b\"]",
       "link.rate is missing; expected bits per second, here or in [default]"},
      {"[network]\nhosts = \"a\nb\"", "wan.toml:2: "},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr(expected), Not(HasSubstr("\n")))) << text;
  }
}

TEST(NetworkFile, NoNestingEndsInTheStack) {
  std::string dots;
  for (int i = 0; i < 60'000; ++i) dots += "a.";
  EXPECT_THAT(error_of(dots + "a = 1"), HasSubstr("dots outside of strings"));
}

TEST(NetworkFile, AMissingFileSaysWhereToGetOne) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "wan.toml";
  EXPECT_THAT(harness::message_of<ConfigError>([&] { read_network(path); }),
              AllOf(HasSubstr("wan.toml"), HasSubstr("`trireme network --example` prints one")));
  write_file_atomically(path, example_network());
  EXPECT_EQ(read_network(path), parse_network(example_network(), "example"));
}

}  // namespace
}  // namespace trireme::launch
