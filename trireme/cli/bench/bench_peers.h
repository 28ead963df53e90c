// The programs with which `trireme bench comm --compare` compares. Each is written as its own users
// would write it, so that its times are fair.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_comm.h"

namespace trireme::cli::inline internal {

struct PeerOptions {
  std::filesystem::path folder;  // contains gloo_peer.py and mpi_peer
  std::string python;            // has torch: measures gloo through torch.distributed
};

// Names: "gloo", "mpi".
// Throws: ConfigError when a name is unknown or its program is missing, with the way to get it
void check_peers(const std::vector<std::string>& names, const PeerOptions& options);

// Times `cases` on a peer: each operation, dtype and size once, in the peer's own memory. Leaves
// out what the peer cannot do (bf16 sums over Gloo).
// Throws: as capture_local_ranks
std::vector<CommResult> run_peer(const std::string& name, const PeerOptions& options,
                                 const std::vector<CommCase>& cases, int num_ranks,
                                 double seconds_per_case);

// Adds the median over rounds of a peer's times to the results with the same operation, dtype,
// bytes and ranks.
void add_peer(std::vector<CommResult>& results, const std::string& name,
              const std::vector<std::vector<CommResult>>& rounds);

// Combines several runs of the same cases: the median of each time.
std::vector<CommResult> median_of_rounds(const std::vector<std::vector<CommResult>>& rounds);

}  // namespace trireme::cli::inline internal
