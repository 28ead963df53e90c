// Config keys on a command line.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::cli::inline internal {

// "--train.steps=10" and "--train.steps 10" -> {"train.steps", "10"}.
// Throws: ConfigError for a word that is neither
std::vector<train::Override> parse_overrides(const std::vector<std::string>& words);

}  // namespace trireme::cli::inline internal
