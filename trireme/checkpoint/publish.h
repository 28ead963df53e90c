// Publishes a checkpoint in its folder and removes old ones. After a kill at any moment, every
// checkpoint with a final name is whole.
#pragma once

#include <filesystem>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

// The folder of a checkpoint that is being written. Readers do not take it for a checkpoint.
std::filesystem::path temporary_folder(const std::filesystem::path& root, int64_t step,
                                       int64_t epoch = 1);

// Removes what interrupted saves have left, up to this epoch. What cannot be removed stays: no save
// depends on it.
void remove_leftovers(const std::filesystem::path& root, int64_t epoch = 1);

// Takes the checkpoint's name from its folder, durably, and removes what can be removed.
// Throws: Error when it keeps its name
void remove_checkpoint(const std::filesystem::path& folder, bool fsync);

// Makes `root`, without leftovers, and the empty temporary folder in it, which it returns.
std::filesystem::path prepare_temporary(const std::filesystem::path& root, int64_t step,
                                        int64_t epoch = 1);

// Writes the manifest into `temporary`, whose other files are on the disk, and gives the folder its
// name. Replaces a checkpoint of the same step and epoch. Fails once a later epoch has removed the
// folder as a leftover.
// Throws: CheckpointError when readers would refuse the manifest; Error when it cannot be written
void commit(const std::filesystem::path& root, const std::filesystem::path& temporary,
            const Manifest& manifest, bool fsync);

// commit() of a folder that has its manifest already.
void publish(const std::filesystem::path& temporary, bool fsync);

// Removes checkpoints beyond options.keep, up to options.epoch, but never that of step `newest`. A
// folder that cannot be removed is left: the new checkpoint is safe, which is what the caller asked
// for.
void remove_old(const std::filesystem::path& root, int64_t newest, const SaveOptions& options);

}  // namespace trireme::checkpoint
