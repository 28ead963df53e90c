#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {
namespace {

constexpr const char* kSlurmHas = "Slurm has";
constexpr const char* kSayStep = "start it with srun --ntasks-per-node=1 trireme run ...";

std::string_view job_list(const Variables& variables) {
  return first_set(variables, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
}

// Whether srun started this process. Slurm runs batch scripts and interactive shells as steps too,
// on one host of the job; their numbers are above 0xfffffff0.
bool is_in_step(const Variables& variables) {
  const std::string_view name = first_set(variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  const std::string& id = value_of(variables, name);
  return !id.empty() && !(id.size() == 10 && id >= "4294967280");
}

// Cores per host, which Slurm gives for the job's list.
void add_slots(const Variables& variables, std::vector<JobHost>& hosts) {
  const std::string& cpus = value_of(variables, "SLURM_JOB_CPUS_PER_NODE");
  const std::string_view list = job_list(variables);
  if (cpus.empty() || list.empty()) return;
  const auto names = comm::expand_hosts(list, value_of(variables, list));
  const auto counts = comm::expand_counts("SLURM_JOB_CPUS_PER_NODE", cpus);
  TRIREME_CHECK(counts.size() == names.size(), "SLURM_JOB_CPUS_PER_NODE is \"", shown(cpus), "\", ",
                counts.size(), " hosts; expected ", names.size(), ", the number of hosts in ", list,
                " = ", shown(value_of(variables, list)));
  std::unordered_map<std::string_view, int> slots;
  for (size_t i = 0; i < names.size(); ++i) slots[names[i]] = counts[i];
  for (JobHost& host : hosts) {
    const auto found = slots.find(host.name);
    if (found != slots.end()) host.slots = found->second;
  }
}

std::vector<JobHost> read_list(const Variables& variables, std::string_view list,
                               std::string_view count) {
  std::vector<JobHost> hosts;
  for (std::string& name : comm::expand_hosts(list, value_of(variables, list))) {
    hosts.push_back({std::move(name), 0});
  }
  if (!value_of(variables, count).empty()) {
    TRIREME_CHECK(number_of(variables, count, 1, kSlurmHas) == static_cast<int>(hosts.size()),
                  count, " is ", value_of(variables, count), "; expected ", hosts.size(),
                  ", the number of hosts in ", list, " = ", shown(value_of(variables, list)));
  }
  add_slots(variables, hosts);
  return hosts;
}

void check_tasks_per_host(const Variables& variables, size_t num_hosts) {
  constexpr const char* kName = "SLURM_STEP_TASKS_PER_NODE";
  const std::string& text = needed(variables, kName, kSayStep);
  const std::vector<int> tasks = comm::expand_counts(kName, text);
  // Each agent starts the host's workers. Two on one host would start them twice.
  TRIREME_CHECK(
      tasks.size() == num_hosts && std::ranges::all_of(tasks, [](int n) { return n == 1; }), kName,
      " is \"", shown(text), "\"; expected one agent on each of ", num_hosts,
      " hosts, which starts the host's workers: ", kSayStep);
}

void check_slurm_host(const Variables& variables, const JobHosts& job, std::string_view list) {
  TRIREME_CHECK(job.node_rank < static_cast<int>(job.hosts.size()), "SLURM_NODEID is ",
                job.node_rank, "; expected below the ", job.hosts.size(), " hosts of ", list, " = ",
                shown(value_of(variables, list)));
  const std::string& name = value_of(variables, "SLURMD_NODENAME");
  TRIREME_CHECK(name.empty() || name == job.hosts[job.node_rank].name, "SLURMD_NODENAME is \"",
                shown(name), "\" and SLURM_NODEID is ", job.node_rank, "; expected host \"",
                shown(job.hosts[job.node_rank].name), "\" of ", list, " = ",
                shown(value_of(variables, list)));
}

std::optional<int64_t> end_of_job(const Variables& variables) {
  const std::string& text = value_of(variables, "SLURM_JOB_END_TIME");
  if (text.empty()) return std::nullopt;
  int64_t time = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
  TRIREME_CHECK(error == std::errc() && end == text.data() + text.size() && time >= 0,
                "SLURM_JOB_END_TIME is \"", shown(text), "\"; expected seconds since 1970");
  return time;
}

}  // namespace

std::vector<JobHost> hosts_of_slurm(const Variables& variables) {
  const std::string_view list = job_list(variables);
  return list.empty() ? std::vector<JobHost>() : read_list(variables, list, "SLURM_JOB_NUM_NODES");
}

std::optional<JobHosts> read_slurm(const JobView& view) {
  const Variables& variables = view.variables;
  if (first_set(variables, {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST",
                            "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NODEID", "SLURM_PROCID"})
          .empty()) {
    return std::nullopt;
  }
  // Each component sees its own hosts only, so agents could not meet across them.
  const std::string& components = value_of(variables, "SLURM_HET_SIZE");
  TRIREME_CHECK(components.empty() || components == "1", "SLURM_HET_SIZE is \"", shown(components),
                "\", and Slurm tells a process only the hosts of its own component; expected a job "
                "of one component, ",
                kSayHosts);
  JobHosts job{.scheduler = "Slurm"};
  const std::string_view id = first_set(variables, {"SLURM_JOB_ID", "SLURM_JOBID"});
  job.id = needed(variables, id.empty() ? "SLURM_JOB_ID" : id, kSayStep);
  const bool in_step = is_in_step(variables);
  std::string_view list = in_step ? "SLURM_STEP_NODELIST" : job_list(variables);
  TRIREME_CHECK(!list.empty(),
                "SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not, as in a shell or "
                "container that only heard of the job; for all of its hosts ",
                kSayStep, "; for this host alone, give --nnodes 1");
  needed(variables, list, kSayStep);
  job.hosts = read_list(variables, list, in_step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES");
  job.min_hosts = static_cast<int>(job.hosts.size());
  if (in_step) {
    // Steps of one job run beside each other and must not meet.
    job.id += "." + value_of(variables, first_set(variables, {"SLURM_STEP_ID", "SLURM_STEPID"}));
    check_tasks_per_host(variables, job.hosts.size());
  }
  TRIREME_CHECK(
      in_step || job.hosts.size() == 1, list, " is \"", shown(value_of(variables, list)), "\", ",
      job.hosts.size(),
      " hosts, and no step of srun started this process; expected an agent on each: ", kSayStep);
  job.node_rank = number_of(variables, "SLURM_NODEID", 0, kSlurmHas);
  check_slurm_host(variables, job, list);
  job.end_unix_s = end_of_job(variables);
  job.port = comm::port_of_job("slurm-" + job.id);
  return job;
}

}  // namespace trireme::launch
