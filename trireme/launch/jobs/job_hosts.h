// The hosts of a job and which of them this process runs on, as its scheduler says: one reader per
// scheduler. Never assumes that a job has one host: what is missing or contradicts itself is an
// error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

// A process's environment as a map, so that what reads it can be tested.

using Variables = std::map<std::string, std::string, std::less<>>;

// The value; "" when the variable is not set. Schedulers do not tell the two apart either.
const std::string& value_of(const Variables& variables, std::string_view name);

// The first of `names` that has a value; "" when none has.
std::string_view first_set(const Variables& variables, std::initializer_list<const char*> names);

// setter: who sets the variable, as in "srun has".
// Throws: ConfigError unless the value is a decimal number from `minimum` on
int number_of(const Variables& variables, std::string_view name, int minimum,
              std::string_view setter);

// Throws: ConfigError when the variable has no value; `advice` says what to do
const std::string& needed(const Variables& variables, std::string_view name,
                          std::string_view advice);

struct JobHost {
  std::string name;  // "": the launcher does not say; never of the first host
  int slots = 0;     // cores or processes that the job may use there; 0: not said

  bool operator==(const JobHost&) const = default;
};

struct JobHosts {
  std::string scheduler = {};       // "Slurm", "PBS", "LSF", "Open MPI" or "Kubernetes"
  std::string id = {};              // the scheduler's name for the job, the same on all hosts
  std::vector<JobHost> hosts = {};  // in the same order on all hosts; at least one
  int min_hosts = 1;                // hosts.size() unless the job may run on fewer (PET_NNODES=A:B)
  int node_rank = 0;                // this process's index in `hosts`; -1: the agents agree on it
  int port = 0;                     // where agents meet on the first host, the same on all hosts
  int nproc_per_node = 0;           // workers per host (PET_NPROC_PER_NODE); 0: not said
  std::optional<int64_t> end_unix_s{};  // when the scheduler ends the job (Slurm from 23.02 on)

  const std::string& head() const { return hosts.front().name; }
};

// The inputs of the function below, besides the files that variables name.
struct JobView {
  Variables variables;
  std::string hostname;  // this host's, as gethostname() says
};

// Reads the variables of the first of these that has set one; none when none has.
//   Kubernetes  JOB_COMPLETION_INDEX (Indexed Job) or PET_NODE_RANK, with PET_NNODES and
//               PET_MASTER_ADDR or PET_RDZV_ENDPOINT (Kubeflow, torchrun)
//   Open MPI    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE. The first host is MASTER_ADDR, or else
//               that of mpirun's --default-hostfile or of the scheduler's list.
//   Slurm       SLURM_STEP_NODELIST and SLURM_NODEID, in a step of one task per host; outside a
//               step SLURM_JOB_NODELIST, which may then have one host only
//   PBS         PBS_NODEFILE, in which this host's name is looked up
//   LSF         LSB_DJOB_HOSTFILE, else LSB_MCPU_HOSTS, else LSB_HOSTS; likewise
// Throws: ConfigError with the variable, its value and what is expected: part of the variables is
//         missing, a file cannot be read, this host is not in the list, several agents were started
//         per host, or there are more than 100,000 hosts
std::optional<JobHosts> read_job_hosts(const JobView& view);

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

// Advice that holds whatever the scheduler says.
inline constexpr std::string_view kSayHosts =
    "or give --nnodes, --node-rank and --rdzv-endpoint yourself";

}  // namespace trireme::launch
