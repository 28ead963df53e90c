// The programs that `trireme bench comm --compare` runs beside it: each is written as its own users
// would write it, so that its times are its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_comm.h"

namespace trireme::cli {

struct PeerOptions {
  std::filesystem::path folder;  // holds gloo_peer.py and mpi_peer
  std::string python;            // has torch: gloo as torch.distributed gives it
};

// Names: "gloo", "mpi".
// Throws: ConfigError when a name is unknown or its program is missing; says how to get it
void check_peers(const std::vector<std::string>& names, const PeerOptions& options);

// Times `cases` on a peer (each operation, dtype and size once; memory is the peer's own). What the
// peer cannot do (bf16 sums over Gloo) is left out.
// Throws: as capture_local_ranks
std::vector<CommResult> run_peer(const std::string& name, const PeerOptions& options,
                                 const std::vector<CommCase>& cases, int num_ranks,
                                 double seconds_per_case);

// Puts the median over rounds of a peer's times into the results of the same operation, dtype,
// bytes and ranks.
void add_peer(std::vector<CommResult>& results, const std::string& name,
              const std::vector<std::vector<CommResult>>& rounds);

// Several runs of the same cases as one: the median of each time.
std::vector<CommResult> median_of_rounds(const std::vector<std::vector<CommResult>>& rounds);

}  // namespace trireme::cli
