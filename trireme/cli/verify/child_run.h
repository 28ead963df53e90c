// A training of this program in a process of its own, whose output goes into a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/machine/group_guard.h"

namespace trireme::cli {

// words: what follows `train`: a config file, options and keys. log: is replaced
// Returns the exit code; 128 and more after a signal.
// Throws: ConfigError when the log cannot be written; Error when this process was stopped by a
//         signal, with the training
int run_training(const std::vector<std::string>& words, const std::filesystem::path& log,
                 GroupGuard& guard);

// The last line of what a training has printed, which says why it ended.
std::string last_line(const std::filesystem::path& log);

}  // namespace trireme::cli
