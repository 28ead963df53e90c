// The files of a checkpoint that each site has, and sending them from one site to another over the
// ranks' group, because sites share no file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

struct Transfer {
  std::string file;
  uint64_t num_bytes = 0;
  int from = 0;  // sites, not the same
  int to = 0;
};

// The leaders send and receive, all pairs of sites of the same distance at a time. A file comes
// from `source` of its sender and lies in `target` of its receiver afterwards. Bytes are not
// checked here: the digests of a checkpoint's chunks are, at load.
// lane: the same ranks as `group`; nobody else uses it meanwhile. Bytes travel there, so that the
// ranks can wait for each other's disks over `group`.
// Memory:     two blocks of 4 MiB in a leader
// Comm:       each file once, from leader to leader
// Collective: every rank of `group`, with the same plan and sites
// Throws:     on all ranks: Error when a file cannot be read, is not of that size, or cannot be
//             written; CommError
void transfer_files(std::span<const Transfer> plan, const std::filesystem::path& source,
                    const std::filesystem::path& target, const Sites& sites,
                    comm::Communicator& group, comm::Communicator& lane,
                    const OnWait& on_wait = {});

using FileNames = std::set<std::string>;

// The files of the manifest that `folder` has, with the right sizes.
FileNames present_files(const Manifest& manifest, const std::filesystem::path& folder);

// A set of names as text, for other ranks, and the reverse.
std::string to_text(const FileNames& names);
FileNames parse_names(const std::string& text);

// Gathers present_files() of each site, from the leaders.
// Collective: every rank of `group`
std::vector<FileNames> gather_present(const Manifest& manifest, const std::filesystem::path& folder,
                                      const Sites& sites, comm::Communicator& group,
                                      const OnWait& on_wait);

// The union of what the ranks of each site name.
// Collective: every rank of `group`
std::vector<FileNames> gather_by_site(const FileNames& mine, const Sites& sites,
                                      comm::Communicator& group, const OnWait& on_wait);

// The transfers that give each site the files it wants, each from the first site that has it.
// Throws: CheckpointError when no site has it
std::vector<Transfer> plan_transfers(const Manifest& manifest, const std::vector<FileNames>& wanted,
                                     const std::vector<FileNames>& present);

}  // namespace trireme::checkpoint
