#include "trireme/launch/jobs/job_hosts.h"

#include "trireme/launch/jobs/schedulers.h"

namespace trireme::launch::inline internal {

// The innermost launcher comes first: mpirun may run within a Slurm job.
std::optional<JobHosts> read_job_hosts(const JobView& view) {
  for (const auto read : {read_kubernetes, read_open_mpi, read_slurm, read_pbs, read_lsf}) {
    if (std::optional<JobHosts> hosts = read(view)) return hosts;
  }
  return std::nullopt;
}

}  // namespace trireme::launch::inline internal
