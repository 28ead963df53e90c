// Checkpoints whose files lie at several sites, on local disks or in the memory of hosts: finds one
// that is complete, and brings what a site lacks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// Age of the manifest of the checkpoint `folder`; 0 when there is none.
std::chrono::seconds age_of(const std::filesystem::path& folder);

struct SiteCheckpoint {
  std::filesystem::path folder;
  int64_t step = 0;
  std::chrono::seconds age{0};  // of the oldest site's part
};

struct FoundCheckpoint {
  std::optional<SiteCheckpoint> newest{};
  std::vector<std::string> notes{};  // on newer ones that cannot be used, one line each
};

// The newest checkpoint in `root` whose every file is at some site, except the steps `left_out`.
// Reads manifests and sizes; the digests are compared at load.
// Comm:       names of files
// Collective: every rank of `world`
FoundCheckpoint find_complete(const std::filesystem::path& root, const std::set<int64_t>& left_out,
                              const Sites& sites, comm::Communicator& world,
                              const OnWait& on_wait = {});

// Brings the manifest of the checkpoint `folder` to every site, and to each the files that have
// boxes of its ranks' entries; load() finds them then. Changes nothing where all is there.
// Comm:       each file once per site that lacks it, over a split of `world`
// Collective: every rank of `world`
// Throws:     on all ranks: CheckpointError when the sites' manifests differ or no site has a file;
//             Error when a file cannot be read or written; CommError
void bring(const std::filesystem::path& folder, std::span<const Entry> entries, const Sites& sites,
           comm::Communicator& world, const OnWait& on_wait = {});

}  // namespace trireme::checkpoint
