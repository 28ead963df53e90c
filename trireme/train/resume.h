// Where a run goes on, and whether it may: the newest checkpoint of its folder, what the config
// says now against what it said then, and whether the data is the same.
// What may change: docs/resume.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"
#include "trireme/train/config/config_schema.h"
#include "trireme/train/run/data_identity.h"

namespace trireme::train {

struct Change {
  std::string key;
  std::string before;  // as TOML writes it
  std::string after;
  OnResume rule = OnResume::kMustStay;
  bool operator==(const Change&) const = default;
};

// The keys whose values differ, in the schema's order.
std::vector<Change> changes(const RunConfig& before, const RunConfig& after);

struct ResumePoint {
  std::filesystem::path checkpoint{};  // empty: the run begins at step 1
  std::vector<std::string> notes{};    // what the user should know of it, one line each
};

// Looks into config.output.folder; `config` is resolved, `data` is what it reads, and `validation`
// what it evaluates on, if it does. Data is the same by its content: data.path may change to a
// copy, and must stay where the checkpoint does not say what it was trained on.
// Throws: ConfigError when a key that must stay has changed and resume.allow does not name it;
//         CheckpointError when there is no checkpoint although there was one
ResumePoint find_resume_point(const RunConfig& config, const DataIdentity& data,
                              const DataIdentity& validation = {});

// Remembers in the run's folder that it has had a checkpoint, of `step` at first.
void note_checkpoint(const std::filesystem::path& folder, int64_t step);

// "; since it was saved ...": the changes that can make a checkpoint's tensors other ones. Empty
// when there are none or the checkpoint cannot be read.
std::string describe_changes(const std::filesystem::path& checkpoint, const RunConfig& config);

}  // namespace trireme::train
