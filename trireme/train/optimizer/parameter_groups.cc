#include "trireme/train/optimizer/parameter_groups.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {
namespace {

constexpr const char* kExpected = R"(expected such as "*.bias: decay=0; lm_head.*: rate=0.5")";

[[noreturn]] void fail(const std::string& part, const std::string& problem) {
  throw ConfigError(concat("optimizer.groups: \"", part, "\" ", problem, "; ", kExpected));
}

// "decay=0.1"
void parse_setting(const std::string& text, ParameterGroup& group) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::vector<std::string> key = split_list(text.substr(0, equals), '=');
  const bool is_decay = key == std::vector<std::string>{"decay"};
  if (!is_decay && key != std::vector<std::string>{"rate"}) fail(text, "sets no decay or rate");

  const std::vector<std::string> values = split_list(text.substr(equals), '=');
  const std::string digits = values.size() == 1 ? values[0] : "";
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number =
      !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || !std::isfinite(number) || number < 0)
    fail(text, "is not a number of at least 0");

  std::optional<double>& target = is_decay ? group.decay : group.rate;
  if (target) fail(text, "is set twice");
  target = number;
}

ParameterGroup parse_group(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail(text, "has no colon");
  const std::vector<std::string> pattern = split_list(text.substr(0, colon), ':');
  const std::vector<std::string> settings = split_list(text.substr(colon + 1), ',');
  if (pattern.empty()) fail(text, "has no pattern before the colon");
  if (settings.empty()) fail(text, "has no setting after the colon");
  ParameterGroup group{.pattern = pattern[0]};
  for (const std::string& setting : settings) parse_setting(setting, group);
  return group;
}

auto group_of(std::span<const ParameterGroup> groups, const std::string& name) {
  return std::ranges::find_if(
      groups, [&](const std::string& pattern) { return matches(pattern, name); },
      &ParameterGroup::pattern);
}

void check_used(std::span<const ParameterGroup> groups, std::span<const std::string> parameters) {
  std::vector<bool> used(groups.size(), false);
  for (const std::string& name : parameters) {
    const auto group = group_of(groups, name);
    if (group != groups.end()) used[static_cast<size_t>(group - groups.begin())] = true;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (used[i]) continue;
    fail(groups[i].pattern,
         "matches no parameter that an earlier group left; the first parameter is \"" +
             (parameters.empty() ? "" : parameters[0]) + "\"");
  }
}

}  // namespace

std::vector<ParameterGroup> parse_parameter_groups(std::string_view text) {
  std::vector<ParameterGroup> groups;
  for (const std::string& part : split_list(text, ';')) groups.push_back(parse_group(part));
  return groups;
}

std::vector<ParameterSettings> parameter_settings(std::span<const parallel::Shard> shards,
                                                  std::span<const ParameterGroup> groups,
                                                  double weight_decay,
                                                  std::span<const std::string> parameters) {
  std::vector<ParameterSettings> settings;
  std::vector<std::string> names;
  for (const parallel::Shard& shard : shards) {
    names.push_back(shard.name);
    const bool has_matrices = shard.layout.shape().size() >= 2 && !is_expert_bias(shard.layout);
    const double by_default = has_matrices ? weight_decay : 0.0;
    ParameterSettings& mine = settings.emplace_back(by_default, 1.0);
    const auto group = group_of(groups, shard.name);
    if (group == groups.end()) continue;
    mine = {group->decay.value_or(by_default), group->rate.value_or(1.0)};
  }
  check_used(groups, parameters.empty() ? names : parameters);
  return settings;
}

}  // namespace trireme::train
