// The layout of a trained model that ranks share to answer: to continue texts, or to predict.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::train {

// The keys that a command takes for it: "parallel.tensor" and others.
std::vector<std::string> asking_keys();

// The config of that model on `num_ranks` ranks, which answers one batch at a time.
// trained: the run's. defaults: those of its task. task: the one whose model answers. layout: keys
// of asking_keys() with their values
// Throws: ConfigError with the key, its value, the reason, and what to do
RunConfig asked_config(const RunConfig& trained, RunConfig defaults, std::unique_ptr<Task> task,
                       std::span<const Override> layout, int num_ranks);

}  // namespace trireme::train
