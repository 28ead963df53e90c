// How a checkpoint comes into being in its folder, and how old ones go. Killed at any moment, what
// has a name is whole.
#pragma once

#include <filesystem>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint::inline internal {

// The folder of a checkpoint that is being written. It is no checkpoint.
std::filesystem::path temporary_folder(const std::filesystem::path& root, int64_t step);

// Removes what interrupted saves have left.
void remove_leftovers(const std::filesystem::path& root);

// Makes `root`, without leftovers, and the temporary folder in it, which it returns.
std::filesystem::path prepare_temporary(const std::filesystem::path& root, int64_t step);

// Writes the manifest into `temporary`, whose other files are on the disk, and gives the folder its
// name. Replaces a checkpoint of the same step.
// Throws: CheckpointError when readers would refuse the manifest; Error when it cannot be written
void commit(const std::filesystem::path& root, const std::filesystem::path& temporary,
            const Manifest& manifest, bool fsync);

// Removes checkpoints beyond options.keep, but never that of step `newest`. A folder that cannot be
// removed is left for the next save: the new checkpoint is safe, which is what the caller asked
// for.
void remove_old(const std::filesystem::path& root, int64_t newest, const SaveOptions& options);

}  // namespace trireme::checkpoint::inline internal
