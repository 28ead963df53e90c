// Runs programs as ranks of this host and takes what they print to standard output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::cli {

// Where `name` lies in PATH, or empty.
std::filesystem::path find_program(const std::string& name);

// Keeps the calling thread, and those it starts, on core `rank` of those this process may use, as
// mpirun does with its ranks: otherwise the system may put two ranks on one core while another is
// idle, and what is timed is its switching. With more ranks than cores nothing is bound.
void bind_to_core(int rank, int num_ranks);

// Each starts `command` num_ranks times, waits for all, and returns their standard output.
// Throws: ConfigError, CommError or InternalError as the first rank to fail exited with 2, 3 or
//         anything else; its text is the line that rank left.

// Ranks with torchrun's variables (launch::run_local_ranks).
std::string capture_local_ranks(const std::vector<std::string>& command, int num_ranks);
// Ranks of Open MPI's mpirun; with more ranks than cores they yield while they wait.
// Throws: ConfigError when there is no mpirun in PATH
std::string capture_mpirun(const std::vector<std::string>& command, int num_ranks);

}  // namespace trireme::cli
