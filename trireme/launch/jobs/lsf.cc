#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/host_file.h"
#include "trireme/launch/jobs/schedulers.h"

namespace trireme::launch::inline internal {
namespace {

constexpr const char* kSayBlaunch =
    "expected the variables of an LSF job, in which blaunch starts it";

// The file has no limit in length. LSF leaves LSB_HOSTS out when it is long.
std::string_view list_variable(const Variables& variables) {
  return first_set(variables, {"LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"});
}

}  // namespace

std::vector<JobHost> hosts_of_lsf(const Variables& variables) {
  const std::string_view list = list_variable(variables);
  if (list.empty()) return {};
  const std::string& value = value_of(variables, list);
  std::vector<JobHost> hosts = list == "LSB_DJOB_HOSTFILE" ? read_host_file(list, value)
                               : list == "LSB_MCPU_HOSTS"  ? count_host_pairs(list, value)
                                                           : count_hosts(list, value);
  if (!value_of(variables, "LSB_DJOB_NUMPROC").empty()) {
    const auto add = [](int64_t sum, const JobHost& host) { return sum + host.slots; };
    const int64_t slots = std::accumulate(hosts.begin(), hosts.end(), int64_t{0}, add);
    const int processes = number_of(variables, "LSB_DJOB_NUMPROC", 1, "LSF has");
    TRIREME_CHECK(slots == processes, list, " = ", shown(value), " has ", slots,
                  " slots; expected LSB_DJOB_NUMPROC = ", processes, ", ", kSayHosts);
  }
  return hosts;
}

std::optional<JobHosts> read_lsf(const JobView& view) {
  const Variables& variables = view.variables;
  const std::string_view list = list_variable(variables);
  if (list.empty() && first_set(variables, {"LSB_JOBID", "LSB_DJOB_NUMPROC"}).empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "LSF"};
  job.id = needed(variables, "LSB_JOBID", kSayBlaunch);
  const std::string& element = value_of(variables, "LSB_JOBINDEX");  // of an array; else 0
  if (!element.empty() && element != "0") job.id += "." + element;
  needed(variables, list.empty() ? "LSB_DJOB_HOSTFILE" : list, kSayBlaunch);
  job.hosts = hosts_of_lsf(variables);
  job.min_hosts = static_cast<int>(job.hosts.size());
  job.node_rank = index_of_host(list, value_of(variables, list), job.hosts, view.hostname);
  job.port = comm::port_of_job("lsf-" + job.id);
  return job;
}

}  // namespace trireme::launch::inline internal
