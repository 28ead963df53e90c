#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/host_file.h"
#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {
namespace {

constexpr const char* kMpirunHas = "mpirun has";
constexpr const char* kSayHead =
    "name the first host, as in mpirun -x MASTER_ADDR=HOST, or the hosts, as in mpirun "
    "--default-hostfile FILE";

struct HostList {
  std::string name = {};  // of its variable
  std::string value = {};
  std::vector<JobHost> hosts = {};
};

// mpirun keeps the hosts to itself. It passes on the file of --default-hostfile (not that of
// --hostfile), and the scheduler's variables are there.
HostList host_list(const Variables& variables) {
  const std::string_view file =
      first_set(variables, {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"});
  if (!file.empty()) {
    const std::string& value = value_of(variables, file);
    // mpirun names the file as the user did, relative to the folder in which it was started.
    const std::filesystem::path folder = value_of(variables, "OMPI_MCA_initial_wdir");
    return {std::string(file), value, read_host_file(file, (folder / value).string())};
  }
  HostList list{"SLURM_JOB_NODELIST", value_of(variables, "SLURM_JOB_NODELIST"),
                hosts_of_slurm(variables)};
  if (list.hosts.empty()) {
    list = {"PBS_NODEFILE", value_of(variables, "PBS_NODEFILE"), hosts_of_pbs(variables)};
  }
  if (list.hosts.empty()) list = {"the list of LSF", "LSB_HOSTS", hosts_of_lsf(variables)};
  return list;
}

void check_agents_per_host(const Variables& variables) {
  const int local = number_of(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMpirunHas);
  // Ranks are the agent's to start. Several agents on a host would each start all of them.
  TRIREME_CHECK(local == 1, "OMPI_COMM_WORLD_LOCAL_SIZE is ", local,
                "; expected one agent per host, which starts the host's workers: start it with "
                "mpirun --map-by ppr:1:node trireme run ...");
}

// Places mpirun's processes on the list's hosts, in order, and checks that this one is where it is.
void place(const JobView& view, const HostList& list, JobHosts& job) {
  TRIREME_CHECK(!list.hosts.empty(), "OMPI_COMM_WORLD_SIZE is ", job.hosts.size(),
                " and no variable lists the hosts; ", kSayHead);
  TRIREME_CHECK(list.hosts.size() == job.hosts.size(), list.name, " = ", shown(list.value),
                " names ", list.hosts.size(),
                " hosts; expected OMPI_COMM_WORLD_SIZE = ", job.hosts.size(), ", or ", kSayHead);
  job.hosts = list.hosts;
  const int index = index_of_host(list.name, list.value, job.hosts, view.hostname);
  // A wrong guess of the order would send agents to a host that does not lead.
  TRIREME_CHECK(index == job.node_rank, "OMPI_COMM_WORLD_RANK is ", job.node_rank,
                " on this host, ", shown(view.hostname), "; expected its place in ", list.name,
                " = ", shown(list.value), ", ", index, "; ", kSayHead);
}

}  // namespace

std::optional<JobHosts> read_open_mpi(const JobView& view) {
  const Variables& variables = view.variables;
  if (first_set(variables, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}).empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "Open MPI"};
  job.node_rank = number_of(variables, "OMPI_COMM_WORLD_RANK", 0, kMpirunHas);
  const int size = number_of(variables, "OMPI_COMM_WORLD_SIZE", 1, kMpirunHas);
  TRIREME_CHECK(job.node_rank < size, "OMPI_COMM_WORLD_RANK is ", job.node_rank,
                "; expected below OMPI_COMM_WORLD_SIZE = ", size);
  TRIREME_CHECK(size <= static_cast<int>(comm::kMaxJobHosts), "OMPI_COMM_WORLD_SIZE is ", size,
                "; expected at most ", comm::kMaxJobHosts);
  check_agents_per_host(variables);
  const std::string_view id = first_set(variables, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  job.id = needed(variables, id.empty() ? "PMIX_NAMESPACE" : id, "expected mpirun's");
  job.hosts.resize(static_cast<size_t>(size));
  job.min_hosts = size;
  // The user's own word comes first: mpirun -x MASTER_ADDR.
  if (const std::string& head = value_of(variables, "MASTER_ADDR"); !head.empty()) {
    job.hosts[0].name = head;
  } else if (size == 1) {
    job.hosts[0].name = view.hostname;
  } else {
    place(view, host_list(variables), job);
  }
  job.port = comm::port_of_job("mpirun-" + job.id);
  if (!value_of(variables, "MASTER_PORT").empty()) {
    job.port = number_of(variables, "MASTER_PORT", 1, "the launcher has");
  }
  return job;
}

}  // namespace trireme::launch
