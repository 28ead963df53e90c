#include "trireme/train/run/run_facts.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/build_info.h"
#include "trireme/base/clock.h"

namespace trireme::train {
namespace {

TEST(RunFacts, NameTheProgramTheHostAndTheTime) {
  const double before = unix_seconds();
  const nlohmann::json facts = nlohmann::json::parse(run_facts());
  EXPECT_EQ(facts.at("version").get<std::string>(), build_version());
  EXPECT_EQ(facts.at("revision").get<std::string>(), build_revision());
  EXPECT_EQ(facts.at("libtorch").get<std::string>().substr(0, 2), "2.");
  EXPECT_FALSE(facts.at("host").get<std::string>().empty());
  EXPECT_GE(facts.at("started").get<double>(), before);
  EXPECT_EQ(facts.size(), 5U);
}

}  // namespace
}  // namespace trireme::train
