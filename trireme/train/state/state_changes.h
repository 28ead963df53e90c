// Compares what two checkpoints hold besides tensors.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::train {

struct StateChange {
  std::string key;     // "step", "data.tokens", "config.train.steps"
  std::string before;  // JSON; for keys of the config TOML. Empty: not there
  std::string after;
  bool operator==(const StateChange&) const = default;
};

struct SavedState {
  std::string json{};             // as checkpoint::inspect() returns it
  std::filesystem::path where{};  // the checkpoint, for messages
};

// The keys whose values differ: those of the state first, then the config's in the schema's order.
// Configs of different tasks differ in task.name. Configs that this program cannot read, such as
// those of another program's task, differ in the key "config", whose values are the reasons.
// Throws: CheckpointError when a state is not JSON
std::vector<StateChange> state_changes(const SavedState& before, const SavedState& after,
                                       const Offer& offer);

}  // namespace trireme::train
