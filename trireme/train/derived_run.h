// The folder of a new run that begins with a checkpoint made from another run's. It appears
// complete or not at all.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/base/file/new_folder.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// The config that a run has written into its checkpoint, for a run in the folder `output` with any
// number of data-parallel ranks.
// where: the checkpoint, for messages
// Throws: ConfigError when it is a run of a task that the program does not offer; CheckpointError
RunConfig derived_config(const std::string& toml, const std::string& where, const Offer& offer,
                         const std::filesystem::path& output);

// Not thread safe. Without commit() nothing is left.
class DerivedRun {
 public:
  // checkpoint: the other run's. output: a folder that is new or empty
  // Throws: ConfigError when it is neither, or cannot be written
  DerivedRun(std::filesystem::path checkpoint, const std::filesystem::path& output);

  // Where to save the checkpoint.
  std::filesystem::path checkpoints() const { return folder_.path() / "checkpoints"; }
  // config: TOML, for config.toml. Copies what the other run's task has put into its folder, such
  // as a tokenizer; not its metrics.
  // Throws: Error when it cannot be written
  void commit(const std::string& config);

 private:
  std::filesystem::path checkpoint_;
  NewFolder folder_;
};

}  // namespace trireme::train::inline internal
