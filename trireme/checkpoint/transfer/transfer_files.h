// Files that go from one site to another over the ranks' group, because no file system has both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

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

}  // namespace trireme::checkpoint::inline internal
