// Lists of hosts in files and variables: PBS_NODEFILE, LSB_DJOB_HOSTFILE, Open MPI's hostfiles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {

// Longer files are refused.
inline constexpr size_t kMaxHostFileBytes = size_t{64} << 20;

// Reads lines of a host and optionally `slots=N`, `max_slots=N` (Open MPI) or a bare N (LSF). A
// line without a number is one slot, and a repeated host adds up. `#` starts a comment.
// variable: which one named the file, for errors.
// Throws: ConfigError when the file cannot be read, has no host or another form
std::vector<JobHost> read_host_file(std::string_view variable, const std::string& path);

// The same for words, each a host: "a a b".
// Throws: ConfigError for a name with control characters, and for more than 100,000 hosts
std::vector<JobHost> count_hosts(std::string_view variable, std::string_view words);

// The same for hosts that are each followed by a number of slots: "a 2 b 1".
std::vector<JobHost> count_host_pairs(std::string_view variable, std::string_view words);

// The index of this host: by its whole name, or else by its name up to the first dot if that is
// unambiguous.
// Throws: ConfigError when it is not in the list
int index_of_host(std::string_view variable, std::string_view value,
                  const std::vector<JobHost>& hosts, std::string_view hostname);

}  // namespace trireme::launch
