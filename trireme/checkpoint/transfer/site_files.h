// Which site has which files of a checkpoint.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/checkpoint/transfer/transfer_files.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

using FileNames = std::set<std::string>;

// The files of the manifest that `folder` has, with the right sizes.
FileNames present_files(const Manifest& manifest, const std::filesystem::path& folder);

// A set of names as text, for other ranks, and the reverse.
std::string to_text(const FileNames& names);
FileNames parse_names(const std::string& text);

// What the leaders found: present_files() of each site.
// Collective: every rank of `group`
std::vector<FileNames> gather_present(const Manifest& manifest, const std::filesystem::path& folder,
                                      const Sites& sites, comm::Communicator& group,
                                      const OnWait& on_wait);

// The union of what the ranks of each site name.
// Collective: every rank of `group`
std::vector<FileNames> gather_by_site(const FileNames& mine, const Sites& sites,
                                      comm::Communicator& group, const OnWait& on_wait);

// What must travel so that each site has what it wants; each file from the first site that has it.
// Throws: CheckpointError when no site has it
std::vector<Transfer> plan_transfers(const Manifest& manifest, const std::vector<FileNames>& wanted,
                                     const std::vector<FileNames>& present);

}  // namespace trireme::checkpoint::inline internal
