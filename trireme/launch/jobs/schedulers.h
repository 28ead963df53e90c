// One reader per scheduler. job_hosts.h says what each reads.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch::inline internal {

// Each returns none when the scheduler has set no variable.
// Throws: as read_job_hosts()
std::optional<JobHosts> read_kubernetes(const JobView& view);
std::optional<JobHosts> read_open_mpi(const JobView& view);
std::optional<JobHosts> read_slurm(const JobView& view);
std::optional<JobHosts> read_pbs(const JobView& view);
std::optional<JobHosts> read_lsf(const JobView& view);

// The hosts that a scheduler has given the job, whichever process asks; empty when it has set no
// variable.
std::vector<JobHost> hosts_of_slurm(const Variables& variables);
std::vector<JobHost> hosts_of_pbs(const Variables& variables);
std::vector<JobHost> hosts_of_lsf(const Variables& variables);

// What a user can do whatever the scheduler says.
inline constexpr std::string_view kSayHosts =
    "or give --nnodes, --node-rank and --rdzv-endpoint yourself";

}  // namespace trireme::launch::inline internal
