// What a new checkpoint takes over from earlier ones: their files, linked into its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "trireme/checkpoint/write/shard_writer.h"
#include "trireme/checkpoint/write/whole_checkpoints.h"

namespace trireme::checkpoint::inline internal {

// Links the files of the newest checkpoint of each root into `temporary`, as far as they are there.
// Returns, as JSON, those checkpoints' folders, which of their files, under which names, and the
// number of the save in `whole` that has written them; what cannot be linked is written again.
std::string link_shared(std::span<const std::filesystem::path> roots,
                        const std::filesystem::path& temporary, const WholeCheckpoints& whole);

// The files that link_shared() has linked, as every rank finds them.
SharedFiles shared_from(const std::string& linked);

// The number of the save that has written the newest checkpoint of `root`; nothing when there is
// none, or another process has written it.
std::optional<int64_t> save_before(const std::string& linked, const std::filesystem::path& root);
// The names of the linked files.
std::set<std::string> linked_names(const std::string& linked);

}  // namespace trireme::checkpoint::inline internal
