#include "trireme/train/optimizer/parameter_groups.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<parallel::Shard> shards_of(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters) {
  std::vector<parallel::Shard> shards;
  for (const auto& [name, shape] : parameters) {
    shards.push_back(
        {.name = name, .weights = at::zeros(shape), .layout = mesh::Layout(shape, {})});
  }
  return shards;
}

const std::vector<parallel::Shard> kShards =
    shards_of({{"h.0.w", {2, 3}}, {"h.0.bias", {3}}, {"norm.w", {3}}, {"lm_head.w", {4, 3}}});

std::vector<ParameterSettings> settings_of(std::string_view text) {
  return parameter_settings(kShards, parse_parameter_groups(text), 0.1);
}

std::string error_of(std::string_view text) {
  try {
    settings_of(text);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

using Settings = std::vector<ParameterSettings>;

TEST(ParameterGroups, MatricesDecayByDefaultAndVectorsDoNot) {
  EXPECT_EQ(settings_of(""), Settings({{0.1, 1}, {0, 1}, {0, 1}, {0.1, 1}}));
  EXPECT_EQ(settings_of(" ; "), settings_of(""));
}

TEST(ParameterGroups, TheFirstMatchHasTheWordAndTheDefaultsSayTheRest) {
  EXPECT_EQ(
      settings_of("*.bias: decay=0.2; norm*: decay=0.3, rate=2; lm_head.*: rate=0.5; *: rate=3"),
      Settings({{0.1, 3}, {0.2, 1}, {0.3, 2}, {0.1, 0.5}}));
  EXPECT_EQ(settings_of("  h.* :rate = 1e-1 ,decay= 0 ;"),
            Settings({{0, 0.1}, {0, 0.1}, {0, 1}, {0.1, 1}}));
}

TEST(ParameterGroups, TheDefaultLooksAtTheWholeParametersShape) {
  std::vector<parallel::Shard> shards = shards_of({{"w", {0, 3}}});
  shards[0].layout = mesh::Layout({6, 3}, {});
  EXPECT_EQ(parameter_settings(shards, {}, 0.1)[0].weight_decay, 0.1);
}

TEST(ParameterGroups, APatternWithoutAParameterIsRefused) {
  EXPECT_THAT(error_of("*.biass: decay=0"), AllOf(HasSubstr("\"*.biass\""), HasSubstr("h.0.w")));
  EXPECT_THAT(error_of("*: decay=0; *.bias: rate=2"), HasSubstr("\"*.bias\""));
}

TEST(ParameterGroups, MalformedTextNamesThePartAndAnExample) {
  for (const auto& [text, part] :
       {std::pair("*.bias", "\"*.bias\" has no colon"),
        std::pair("h.*: rate=1; *.bias decay=0", "\"*.bias decay=0\""),
        std::pair(": decay=0", "no pattern"), std::pair("*.bias:", "no setting"),
        std::pair("*.bias: dekay=0", "\"dekay=0\""), std::pair("*.bias: decay", "\"decay\""),
        std::pair("*.bias: decay=", "\"decay=\""), std::pair("*.bias: decay=x", "\"decay=x\""),
        std::pair("*.bias: decay=1x", "\"decay=1x\""), std::pair("*.bias: decay=-1", "at least 0"),
        std::pair("*.bias: decay=nan", "at least 0"), std::pair("*.bias: rate=inf", "at least 0"),
        std::pair("*.bias: decay=0=1", "\"decay=0=1\""),
        std::pair("*.bias: rate=1, rate=2", "twice")}) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr("optimizer.groups"), HasSubstr(part),
                                      HasSubstr("expected"), Not(HasSubstr("\n"))))
        << text;
  }
}

}  // namespace
}  // namespace trireme::train
