// Configs of the task that most tests of the training loop train: language modelling.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trireme/tasks/language/language.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

inline RunConfig language_config() { return default_config(tasks::all_tasks()); }

inline RunConfig parse_config(std::string_view toml, const std::string& source,
                              std::span<const Override> overrides = {}) {
  return parse_config(toml, source, tasks::all_tasks(), overrides);
}

inline model::ModelConfig& model_of(RunConfig& config) { return tasks::language_of(config).model; }
inline const model::ModelConfig& model_of(const RunConfig& config) {
  return tasks::language_of(config).model;
}
inline tasks::TokenDataConfig& data_of(RunConfig& config) {
  return tasks::language_of(config).data;
}
inline const tasks::TokenDataConfig& data_of(const RunConfig& config) {
  return tasks::language_of(config).data;
}

}  // namespace trireme::train
