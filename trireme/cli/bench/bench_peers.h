// Runs programs as ranks on this host and captures their standard output: those with which `trireme
// bench comm --compare` compares. Each is written as its own users would write it, so that its
// times are fair.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_comm.h"

namespace trireme::cli {

// The path of `name` in PATH, or empty.
std::filesystem::path find_program(const std::string& name);

// Binds the calling thread, and those it starts, to core `rank` of those this process may use, as
// mpirun does. Otherwise the system may put two ranks on one core while another is idle, and its
// switching would be timed. Binds nothing when there are more ranks than cores.
void bind_to_core(int rank, int num_ranks);

// Each starts `command` num_ranks times, waits for all, and returns their standard output.
// Throws: ConfigError, CommError or InternalError if the first rank to fail exited with 2, 3 or
//         anything else; the text is the line which that rank left

// Ranks with torchrun's variables (launch::run_local_ranks).
std::string capture_local_ranks(const std::vector<std::string>& command, int num_ranks);
// Ranks of Open MPI's mpirun. With more ranks than cores they yield while they wait.
// Throws: ConfigError when there is no mpirun in PATH
std::string capture_mpirun(const std::vector<std::string>& command, int num_ranks);

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

}  // namespace trireme::cli
