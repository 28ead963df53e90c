// Decides where a run continues and whether it may: finds its newest checkpoint, and compares
// config and data with those that made it. docs/resume.md lists what may change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"
#include "trireme/train/state/newest_checkpoint.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train::inline internal {

struct Change {
  std::string key;
  std::string before;  // in TOML
  std::string after;
  OnResume rule = OnResume::kMustStay;
  bool operator==(const Change&) const = default;
};

// The keys whose values differ, in the schema's order.
std::vector<Change> changes(const RunConfig& before, const RunConfig& after);

struct ResumePoint {
  std::filesystem::path checkpoint{};  // empty: the run begins at step 1
  std::vector<std::string> notes{};    // for the user, one line each
};

// Finds the newest checkpoint, as newest_checkpoint() does, in config.output.folder and among the
// `fast` ones. `config` must be resolved. `data` is what it trains on and `validation` what it
// evaluates on, if anything. Data is compared by content: data.path may change to a copy, but must
// stay if the checkpoint does not identify its data.
// Throws: ConfigError when a key that must stay has changed and resume.allow does not name it;
//         CheckpointError when a checkpoint that existed is missing, or none is whole
ResumePoint find_resume_point(const RunConfig& config, const DataIdentity& data,
                              const DataIdentity& validation = {},
                              const DamagedCheckpoints& damaged = {},
                              std::span<const FastCheckpoint> fast = {});

// Notes in the run's folder that it has had a checkpoint, the first one at `step`.
void note_checkpoint(const std::filesystem::path& folder, int64_t step);

// "; since it was saved ...": the changes that can change a checkpoint's tensors. "" when there are
// none or the checkpoint cannot be read.
std::string describe_changes(const std::filesystem::path& checkpoint, const RunConfig& config);

}  // namespace trireme::train::inline internal
