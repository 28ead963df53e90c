#include "trireme/train/state/state_changes.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/train/state/resume.h"

namespace trireme::train {
namespace {

constexpr const char* kConfig = "config";

struct ParsedState {
  std::map<std::string, std::string> values{};  // "data.tokens" -> its JSON; without the config
  std::string config{};                         // TOML; empty: none
};

ParsedState parse(const SavedState& state) {
  ParsedState parsed;
  nlohmann::json object;
  try {
    object = parse_json(state.json, state.where.string() + ": the state of the run");
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  if (object.is_object() && object.contains(kConfig) && object[kConfig].is_string()) {
    parsed.config = object[kConfig].get<std::string>();
    object.erase(kConfig);
  }
  const nlohmann::json flat = object.flatten();  // "/data/tokens"
  for (const auto& [path, value] : flat.items()) {
    std::string key = path.substr(std::min<size_t>(1, path.size()));
    std::ranges::replace(key, '/', '.');
    parsed.values[key] = value.dump();
  }
  return parsed;
}

RunConfig parse_own_config(const std::string& toml, const SavedState& state, const Offer& offer) {
  const std::string where = state.where.string();
  return parse_saved_config(toml, where, default_config(offer, saved_task_name(toml, where)));
}

void compare_configs(const std::string& before, const SavedState& first, const std::string& after,
                     const SavedState& second, const Offer& offer,
                     std::vector<StateChange>& found) {
  if (before == after) return;
  std::string reasons[2];
  RunConfig configs[2];
  const std::string* const texts[2] = {&before, &after};
  const SavedState* const states[2] = {&first, &second};
  for (int side = 0; side < 2; ++side) {
    try {
      configs[side] = parse_own_config(*texts[side], *states[side], offer);
    } catch (const Error& error) {
      reasons[side] = error.what();
    }
  }
  if (!reasons[0].empty() || !reasons[1].empty()) {
    found.push_back({kConfig, reasons[0], reasons[1]});
    return;
  }
  const std::string& earlier = configs[0].task_choice.name;
  const std::string& now = configs[1].task_choice.name;
  if (earlier != now) {
    found.push_back({"config.task.name", earlier, now});
    return;
  }
  for (const Change& change : changes(configs[0], configs[1])) {
    found.push_back({concat(kConfig, ".", change.key), change.before, change.after});
  }
}

}  // namespace

std::vector<StateChange> state_changes(const SavedState& before, const SavedState& after,
                                       const Offer& offer) {
  const ParsedState first = parse(before), second = parse(after);
  std::map<std::string, StateChange> differing;  // by key
  for (const auto& [key, value] : first.values) differing[key] = {key, value, ""};
  for (const auto& [key, value] : second.values) {
    StateChange& change = differing[key];
    change.key = key;
    change.after = value;
  }
  std::vector<StateChange> found;
  for (auto& [key, change] : differing) {
    if (change.before != change.after) found.push_back(std::move(change));
  }
  compare_configs(first.config, before, second.config, after, offer, found);
  return found;
}

}  // namespace trireme::train
