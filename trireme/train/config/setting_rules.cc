#include "trireme/train/config/setting_rules.h"

#include "trireme/base/error.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

std::vector<SettingRule> rules_of_ranks_apart(const RunConfig& config, const std::string& reason,
                                              RanksApart who) {
  const TrainConfig& train = config.train;
  std::vector<SettingRule> rules = {
      {"train.shares", !train.shares.empty(), reason, "leave it out"},
      {"train.shares_interval", train.shares_interval > 0, reason, "set it to 0"},
      {"train.skip_bad_steps", train.skip_bad_steps > 0, reason, "set it to 0"},
      {"train.spike_factor", train.spike_factor > 0, reason, "set it to 0"},
      {"train.measure_noise", train.measure_noise, reason, "set it to false"}};
  for (const NamedCallback& named : config.callbacks) {
    const bool is_refused = hears(named, config) &&
                            !(who == RanksApart::kLearners && named.callback->works_in_learners());
    rules.push_back({"the callback " + named.name, is_refused,
                     "callbacks expect all ranks in the same step", "switch it off"});
  }
  return rules;
}

void refuse_settings(const std::string& what, std::span<const SettingRule> rules) {
  for (const SettingRule& rule : rules) {
    TRIREME_CHECK(!rule.is_set, what, " ", rule.setting, ": ", rule.reason, "; ", rule.remedy);
  }
}

}  // namespace trireme::train
