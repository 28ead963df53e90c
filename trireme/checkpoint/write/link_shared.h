// What a new checkpoint takes over from earlier ones: their files, linked into its folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "trireme/checkpoint/write/shard_writer.h"
#include "trireme/checkpoint/write/whole_checkpoints.h"

namespace trireme::checkpoint::inline internal {

// Links the files of the newest checkpoint of each root into `temporary`, as far as they are there.
// Returns, as JSON, those checkpoints' folders, which of their files, and whether they are known to
// be whole; what cannot be linked is written again.
std::string link_shared(std::span<const std::filesystem::path> roots,
                        const std::filesystem::path& temporary, const WholeCheckpoints& whole);

// The files that link_shared() has linked, as every rank finds them.
SharedFiles shared_from(const std::string& linked);

}  // namespace trireme::checkpoint::inline internal
