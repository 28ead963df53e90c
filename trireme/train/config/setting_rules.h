// Settings that another one rules out, as data: parameter servers, learners, teachers, and ways of
// summing gradients use them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::train {

struct RunConfig;

struct SettingRule {
  std::string setting{};  // "parallel.zero = 1", "train.uneven_batches"
  bool is_set = false;
  std::string reason{};
  std::string remedy{};
};

// Who is not always in the same step as the others.
enum class RanksApart {
  kEach,
  kLearners,  // that are ranks of one run: those of one learner always are
};
// The rules of ranks that are not all in the same step.
std::vector<SettingRule> rules_of_ranks_apart(const RunConfig& config, const std::string& reason,
                                              RanksApart who = RanksApart::kEach);

// what: "parallel.servers cannot be combined with"
// Throws: ConfigError for the first that is set: "WHAT SETTING: REASON; REMEDY"
void refuse_settings(const std::string& what, std::span<const SettingRule> rules);

}  // namespace trireme::train
