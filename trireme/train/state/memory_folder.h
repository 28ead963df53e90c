// The folder of this host's memory in which a run keeps checkpoints. It belongs to no process, so
// it is there after all ranks are killed, and goes with the host's next boot at the latest.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::train::inline internal {

// A run as its memory folder knows it.
struct RunMark {
  std::filesystem::path folder;  // absolute
  std::string id;                // random
};

// The mark of the run in `folder`. Its id is in the file `run_id` there, made by the first call; so
// a run that takes the place of a removed one has another.
// Throws: Error when the file cannot be read or written
RunMark mark_run(const std::filesystem::path& folder);

// /dev/shm/trireme-checkpoint-…, a name that only this run has.
std::filesystem::path memory_folder(const RunMark& mark);

// Makes the run's memory folder, for this user alone. Every rank of a host may call it.
// Throws: ConfigError when another user has a folder of this name, or may write in it; Error
void make_memory_folder(const RunMark& mark);

// Writes into the folder whose it is, and removes those of this user's runs that are gone. One rank
// of a host calls it.
void sign_memory_folder(const RunMark& mark);

// Whether the run has a memory folder here that no other user can have written.
bool has_memory_folder(const RunMark& mark);

// The newest checkpoint that the run in `folder` has in this host's memory, for the user: "step 48,
// 3 s old", or "nothing". Makes no file.
std::string newest_in_memory(const std::filesystem::path& folder);

// Removes what the run in `folder` has in this host's memory, unless a checkpoint there is newer
// than those in the folder. For a host that has no part in the run any more. Never throws.
void forget_overtaken_memory(const std::filesystem::path& folder) noexcept;

}  // namespace trireme::train::inline internal
