#include "trireme/train/config/setting_rules.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(SettingRules, TheFirstThatIsSetIsRefusedInOneLine) {
  SettingRule rules[] = {{"a = 1", false, "of this", "do that"},
                         {"b = 2", false, "it is late", "set it to 0"},
                         {"c = 3", false, "of another", "leave it out"}};
  EXPECT_NO_THROW(refuse_settings("servers cannot be combined with", rules));
  rules[1].is_set = rules[2].is_set = true;
  EXPECT_EQ(harness::message_of<ConfigError>(
                [&] { refuse_settings("servers cannot be combined with", rules); }),
            "servers cannot be combined with b = 2: it is late; set it to 0");
}

TEST(SettingRules, RanksApartRefuseWhatNeedsAllRanksInAStep) {
  RunConfig config = language_config();
  const auto set_rules = [&] {
    std::string names;
    for (const SettingRule& rule : rules_of_ranks_apart(config, "apart"))
      names += rule.is_set ? rule.setting + " " : "";
    return names;
  };
  EXPECT_EQ(set_rules(), "");
  config.train.spike_factor = 2;
  config.train.measure_noise = true;
  EXPECT_EQ(set_rules(), "train.spike_factor train.measure_noise ");
}

}  // namespace
}  // namespace trireme::train
