// Weight decay and learning rate by parameter name: config key optimizer.groups.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/data/shard.h"

namespace trireme::train {

struct ParameterGroup {
  std::string pattern;                         // see name_pattern.h
  std::optional<double> decay = std::nullopt;  // weight decay; none: the default's
  std::optional<double> rate = std::nullopt;   // times the learning rate; none: 1
};

// "*.bias: decay=0; *norm*: decay=0, rate=1; lm_head.*: rate=0.5"
// Throws: ConfigError
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

struct ParameterSettings {
  double weight_decay = 0;
  double rate_scale = 1;
  bool operator==(const ParameterSettings&) const = default;
};

// One a shard. The first group whose pattern matches a name has the word; what it does not say, and
// names without a group, get the defaults: rate 1, and `weight_decay` for matrices (two dimensions
// and more), none for norms and biases.
// `parameters`: the names of the whole model, of which this rank may have some; empty: the shards'.
// Throws: ConfigError when a group gets none of them
std::vector<ParameterSettings> parameter_settings(std::span<const parallel::Shard> shards,
                                                  std::span<const ParameterGroup> groups,
                                                  double weight_decay,
                                                  std::span<const std::string> parameters = {});

}  // namespace trireme::train
