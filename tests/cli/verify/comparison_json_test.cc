#include "trireme/cli/verify/comparison_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/verify/compared.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

TEST(ComparisonJson, HasTheVerdictAndAllThatWasCompared) {
  const json object = to_json(compared());
  EXPECT_EQ(object.at("finding"), "bug");
  EXPECT_EQ(object.at("proved"), true);
  EXPECT_EQ(object.at("compared"), 3);
  EXPECT_EQ(object.at("largest_rounding_fp64"), 2e-15);
  EXPECT_EQ(object.at("left_out"), json({"late"}));
  EXPECT_EQ(object.at("same"), json({{{"step", 1}, {"kind", "loss"}, {"name", ""}}}));
  ASSERT_EQ(object.at("probes").size(), 2U);
  EXPECT_EQ(object.at("first"), object.at("probes")[1]);
  EXPECT_EQ(object.at("first").at("fp64_relative"), nullptr);  // infinite
  EXPECT_EQ(object.at("first").at("note"), "only A has it");
  EXPECT_EQ(object.at("first").at("first").at("index"), json({0, 3}));
  EXPECT_EQ(object.at("probes")[0].at("fp32_relative"), 1e-6);
}

TEST(ComparisonJson, ABoundHasOtherNamesThanAProof) {
  verify::Comparison comparison = compared();
  comparison.is_proved = false;
  const json object = to_json(comparison);
  EXPECT_EQ(object.at("proved"), false);
  EXPECT_EQ(object.at("largest_rounding"), 2e-15);
  EXPECT_EQ(object.at("probes")[0].at("relative"), 1e-6);
  EXPECT_EQ(object.at("probes")[0].at("bound_relative"), 2e-15);
  EXPECT_FALSE(object.at("probes")[0].contains("fp64_relative"));
}

TEST(ComparisonJson, TheSameBitsHaveNoFirst) {
  const json object = to_json(verify::Comparison{});
  EXPECT_EQ(object.at("finding"), "same");
  EXPECT_FALSE(object.contains("first"));
  EXPECT_TRUE(object.at("probes").empty());
}

}  // namespace
}  // namespace trireme::cli
