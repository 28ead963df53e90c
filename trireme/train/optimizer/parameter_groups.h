// Weight decay and learning rate by patterns of parameter names, for the config key
// optimizer.groups.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/data/shard.h"

namespace trireme::train {

struct ParameterGroup {
  std::string pattern;                         // see matches()
  std::optional<double> decay = std::nullopt;  // weight decay; empty: the default
  std::optional<double> rate = std::nullopt;   // factor for the learning rate; empty: 1
};

// "*.bias: decay=0; *norm*: decay=0, rate=1; lm_head.*: rate=0.5"
// Throws: ConfigError
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

struct ParameterSettings {
  double weight_decay = 0;
  double rate_scale = 1;
  bool operator==(const ParameterSettings&) const = default;
};

// The settings of each shard. The first group whose pattern matches the name decides. The defaults
// apply to what it does not set and to names without a group: rate 1, and `weight_decay` for
// matrices (two or more dimensions) but none for norms and biases.
// `parameters`: names of the whole model, if this rank has only some of them; empty: the shards'.
// Throws: ConfigError when a group matches none of them
std::vector<ParameterSettings> parameter_settings(std::span<const parallel::Shard> shards,
                                                  std::span<const ParameterGroup> groups,
                                                  double weight_decay,
                                                  std::span<const std::string> parameters = {});

}  // namespace trireme::train
