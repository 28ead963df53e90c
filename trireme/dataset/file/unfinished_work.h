// What a preparation has done when it fails, for the next call to go on with.
#pragma once

#include <filesystem>
#include <functional>

namespace trireme::dataset {

struct UnfinishedWork {
  std::filesystem::path path;         // its folder
  std::function<bool()> has_journal;  // whether there is something to go on with
  std::function<void()> release;      // leaves the folder to the next call
};

// Runs a preparation. What it has done stays when the disk is full or fails, or a store does not
// answer, as it does when the process is killed. It goes when the user has to change something,
// unless it is an earlier call's.
// Throws: what run() throws; of what stays, with the folder
void leaving_work(const UnfinishedWork& work, const std::function<void()>& run);

}  // namespace trireme::dataset
