#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/host_file.h"
#include "trireme/launch/jobs/schedulers.h"

namespace trireme::launch::inline internal {
namespace {

constexpr const char* kSayQsub = "expected the variables of a PBS job, in which qsub starts it";

}  // namespace

std::vector<JobHost> hosts_of_pbs(const Variables& variables) {
  const std::string& path = value_of(variables, "PBS_NODEFILE");
  if (path.empty()) return {};
  std::vector<JobHost> hosts = read_host_file("PBS_NODEFILE", path);
  const auto add = [](int sum, const JobHost& host) { return sum + host.slots; };
  const int lines = std::accumulate(hosts.begin(), hosts.end(), 0, add);
  // Torque's number of lines: fewer of them are a file that was cut short.
  if (!value_of(variables, "PBS_NP").empty()) {
    const int processes = number_of(variables, "PBS_NP", 1, "PBS has");
    TRIREME_CHECK(processes == lines, "PBS_NODEFILE = ", shown(path), " has ", lines,
                  " lines; expected PBS_NP = ", processes, ", ", kSayHosts);
  }
  // With one line per host, the number of cores is in a variable if anywhere: Torque's or
  // OpenPBS's.
  const std::string_view cores = first_set(variables, {"PBS_NUM_PPN", "NCPUS"});
  if (lines == static_cast<int>(hosts.size()) && !cores.empty()) {
    const int slots = number_of(variables, cores, 1, "PBS has");
    for (JobHost& host : hosts) host.slots = slots;
  }
  return hosts;
}

std::optional<JobHosts> read_pbs(const JobView& view) {
  const Variables& variables = view.variables;
  if (first_set(variables, {"PBS_JOBID", "PBS_NODEFILE", "PBS_ENVIRONMENT"}).empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "PBS"};
  job.id = needed(variables, "PBS_JOBID", kSayQsub);
  const std::string& path = needed(variables, "PBS_NODEFILE", kSayQsub);
  job.hosts = hosts_of_pbs(variables);
  job.min_hosts = static_cast<int>(job.hosts.size());
  job.node_rank = index_of_host("PBS_NODEFILE", path, job.hosts, view.hostname);
  job.port = comm::port_of_job("pbs-" + job.id);
  return job;
}

}  // namespace trireme::launch::inline internal
