#include "trireme/train/learner/host_learners.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;

class HostLearnersTest : public TextRun {};

TEST_F(HostLearnersTest, EachHostIsALearner) {
  for (const int hosts : {2, 3, 4}) {
    for (const int ranks : {1, 2}) {
      harness::run_ranks(hosts * ranks, [&](comm::Communicator& world) {
        RunConfig config = TextRun::config("run", {{"parallel.learners", "hosts"}});
        place_learners(config, world, concat("host", world.rank() / ranks));
        EXPECT_EQ(config.parallel.learners, hosts);
      });
    }
  }
}

TEST_F(HostLearnersTest, ANumberStays) {
  harness::run_ranks(2, [&](comm::Communicator& world) {
    RunConfig config = TextRun::config("run", {{"parallel.learners", "1"}});
    place_learners(config, world, concat("host", world.rank()));
    EXPECT_EQ(config.parallel.learners, 1);
  });
}

TEST_F(HostLearnersTest, ServersAreNoLearners) {
  harness::run_ranks(5, [&](comm::Communicator& world) {
    RunConfig config = TextRun::config(
        "run",
        {{"parallel.learners", "hosts"}, {"parallel.servers", "1"}, {"outer.method", "decoupled"}});
    place_learners(config, world, concat("host", world.rank() / 2));
    EXPECT_EQ(config.parallel.learners, 2) << "rank 4 is a server, on a host of its own";
  });
}

TEST_F(HostLearnersTest, OtherHostsAreRefused) {
  const auto refusal = [](const std::vector<std::string>& hosts) {
    return harness::message_of<ConfigError>([&] { learners_of(comm::HostMap(hosts)); });
  };
  EXPECT_THAT(refusal({"a"}), HasSubstr("all ranks are on one"));
  EXPECT_THAT(refusal({"a", "a", "a"}), HasSubstr("all ranks are on one"));
  EXPECT_THAT(refusal({"a", "b", "b"}), HasSubstr("the 2 hosts have 1, 2 ranks"));
  EXPECT_THAT(refusal({"a", "b", "a", "b"}), HasSubstr("not consecutive"));
}

TEST_F(HostLearnersTest, WithoutHostsThatAreKnownItIsRefused) {
  RunConfig config = TextRun::config("run", {{"parallel.learners", "hosts"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { resolve(config, 2); }),
              HasSubstr("parallel.learners is \"hosts\""));
}

}  // namespace
}  // namespace trireme::train
