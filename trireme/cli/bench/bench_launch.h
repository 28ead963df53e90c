// Runs programs as ranks on this host and captures their standard output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::cli::inline internal {

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

}  // namespace trireme::cli::inline internal
