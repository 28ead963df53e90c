// The destination of a checkpoint that was derived from another run's: the folder of a new run,
// which appears complete or not at all, or that of an existing run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/file/folder.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The config that a run has written into its checkpoint, for a run in the folder `output` with any
// number of data-parallel ranks.
// where: the checkpoint, for messages
// Throws: ConfigError when it is a run of a task that the program does not offer; CheckpointError
RunConfig derived_config(const std::string& toml, const std::string& where, const Offer& offer,
                         const std::filesystem::path& output);

// Locks the folder of a run that can go on from a checkpoint with that config.
// toml, where: as for derived_config()
// Throws: ConfigError when `folder` is not a run's, when a run is writing there, and when a key
//         that a resumed run may not change differs, but for the path of the data; CheckpointError
FolderLock lock_run(const std::filesystem::path& folder, const std::string& toml,
                    const std::string& where, const Offer& offer);

// Not thread safe. Without commit() nothing is left.
class DerivedRun {
 public:
  // checkpoint: the other run's. output: a folder that is new or empty
  // Throws: ConfigError when it is neither, or cannot be written
  DerivedRun(std::filesystem::path checkpoint, const std::filesystem::path& output);

  // Where to save the checkpoint.
  std::filesystem::path checkpoints() const { return folder_.path() / "checkpoints"; }
  // config: TOML, for config.toml. files: the names of the files that the other run's task has put
  // into its folder, such as a tokenizer. Those that are there are copied with their permissions,
  // and nothing else.
  // Throws: ConfigError when one of them is a link; Error when it cannot be written
  void commit(const std::string& config, const std::vector<std::string>& files);

 private:
  std::filesystem::path checkpoint_;
  NewFolder folder_;
};

}  // namespace trireme::train
