#include "trireme/comm/rendezvous.h"

#include <cstdlib>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Sets the variables of a job, and puts back what was there.
class Rendezvous : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRIREME_JOB",
                             "MASTER_ADDR", "MASTER_PORT"}) {
      const char* value = std::getenv(name);
      before_[name] = value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("TRIREME_JOB", "galley", 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(Rendezvous, ReadsTorchrunsVariables) {
  const WorldInfo info = world_info();
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.size, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 4);
  EXPECT_EQ(info.job, "galley");
}

TEST_F(Rendezvous, MasterAddressAndPortNameAJobWithoutAName) {
  unsetenv("TRIREME_JOB");
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_ERROR(ConfigError, world_info(), "MASTER_PORT are not set");
  setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(world_info().job, "127.0.0.1-29500");
}

TEST_F(Rendezvous, MissingVariablesAreNamed) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    const std::string value = std::getenv(name.c_str());
    unsetenv(name.c_str());
    EXPECT_ERROR(ConfigError, world_info(), "environment variable " + name + " is not set");
    setenv(name.c_str(), value.c_str(), 1);
  }
}

TEST_F(Rendezvous, MalformedValuesAreNamedWithWhatIsExpected) {
  for (const std::string value : {"two", "-1", "1x", " 1", "99999999999"}) {
    setenv("RANK", value.c_str(), 1);
    EXPECT_ERROR(ConfigError, world_info(),
                 "RANK is \"" + value + "\"; expected a whole number from 0 on");
  }
  setenv("RANK", "4", 1);
  EXPECT_ERROR(ConfigError, world_info(), "RANK is 4; expected below WORLD_SIZE = 4");
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "0", 1);
  EXPECT_ERROR(ConfigError, world_info(), "WORLD_SIZE is \"0\"; expected a whole number from 1 on");
}

TEST_F(Rendezvous, ConnectsAWorldOfOneHost) {
  const WorldInfo info{0, 1, 0, 1, harness::unique_job()};
  EXPECT_EQ(connect_world(info, "auto")->size(), 1);
  EXPECT_EQ(connect_world(info, "shm")->size(), 1);
}

TEST_F(Rendezvous, RefusesUnknownTransportsAndSeveralHosts) {
  const WorldInfo info{0, 1, 0, 1, "galley"};
  EXPECT_ERROR(ConfigError, connect_world(info, "pigeon"), "transport \"pigeon\" is unknown");
  const WorldInfo spread{0, 4, 0, 2, "galley"};
  EXPECT_ERROR(ConfigError, connect_world(spread, "auto"), "has 4 ranks, of which 2 on this host");
}

}  // namespace
}  // namespace trireme::comm
