#include "trireme/comm/rendezvous/rendezvous_variables.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number(const char* name, int minimum, const char* setter) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TRIREME_CHECK(
      !text.empty() && error == std::errc() && end == text.data() + text.size() && value >= minimum,
      "environment variable ", name, " is ", text.empty() ? "not set" : "\"" + text + "\"",
      "; expected a whole number from ", minimum, " on (", setter, " set it)");
  return value;
}

// The first of `names` that is set.
std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return "";
}

// A port above those of services and below those given to clients. The same for all ranks of a job,
// and rarely that of another job.
std::string port_of(const std::string& job_number) {
  uint32_t hash = 2166136261;
  for (const char c : job_number) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return std::to_string(16384 + hash % 16384);
}

// "node[003-010,12],login1" -> "node003".
std::string first_host(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", bracket);
  const size_t close = list.find(']', bracket);
  TRIREME_CHECK(end != std::string::npos && close != std::string::npos, "SLURM_STEP_NODELIST is \"",
                list, "\"; expected hosts as in node[003-010,12]");
  const size_t next = list.find(',', close);
  const size_t suffix = next == std::string::npos ? std::string::npos : next - close - 1;
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, suffix);
}

// "2(x3),1" means 2, 2, 2, 1. Returns the entry of node `index`.
int tasks_of_node(const std::string& text, int index) {
  std::vector<int> counts;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long count = std::strtol(at, &end, 10);
    long repeats = 1;
    bool is_valid = end != at && count >= 0;
    if (is_valid && end[0] == '(' && end[1] == 'x') {
      at = end + 2;
      repeats = std::strtol(at, &end, 10);
      is_valid = end != at && repeats > 0 && repeats < 1 << 20 && *end == ')';
      if (is_valid) ++end;
    }
    TRIREME_CHECK(is_valid && (*end == ',' || *end == '\0'), "SLURM_STEP_TASKS_PER_NODE is \"",
                  text, "\"; expected counts as in 2(x3),1");
    counts.insert(counts.end(), static_cast<size_t>(repeats), static_cast<int>(count));
    at = *end == ',' ? end + 1 : end;
  }
  TRIREME_CHECK(index < static_cast<int>(counts.size()), "SLURM_NODEID is ", index,
                "; expected below the ", counts.size(),
                " nodes of SLURM_STEP_TASKS_PER_NODE = ", text);
  return counts[index];
}

struct Address {
  std::string host;
  std::string port;
};

// Replaces what MASTER_ADDR and MASTER_PORT set.
Address overridden(Address address) {
  if (const std::string host = variable("MASTER_ADDR"); !host.empty()) address.host = host;
  if (!variable("MASTER_PORT").empty()) {
    address.port = std::to_string(number("MASTER_PORT", 1, "the launcher has"));
  }
  return address;
}

Address read_torchrun(WorldInfo& info) {
  constexpr const char* kSetter = "torchrun and `trireme train --ranks N`";
  info.rank = number("RANK", 0, kSetter);
  info.size = number("WORLD_SIZE", 1, kSetter);
  info.local_rank = number("LOCAL_RANK", 0, kSetter);
  info.local_size = number("LOCAL_WORLD_SIZE", 1, kSetter);
  info.launcher_serves_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const std::string run = variable("TORCHELASTIC_RUN_ID"); !run.empty()) {
    // torchrun's agent keeps the store when it restarts the ranks.
    const std::string restarts = variable("TORCHELASTIC_RESTART_COUNT");
    info.job = concat("torchrun-", run, "-", restarts.empty() ? "0" : restarts);
  }
  return overridden({});
}

Address read_open_mpi(WorldInfo& info) {
  constexpr const char* kSetter = "mpirun has";
  info.rank = number("OMPI_COMM_WORLD_RANK", 0, kSetter);
  info.size = number("OMPI_COMM_WORLD_SIZE", 1, kSetter);
  info.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kSetter);
  info.local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kSetter);
  const std::string job = first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (!job.empty()) info.job = "mpirun-" + job;
  const Address address = overridden(
      {info.local_size == info.size ? "127.0.0.1" : "", job.empty() ? "" : port_of(job)});
  TRIREME_CHECK(!address.host.empty(),
                "environment variable MASTER_ADDR is not set and mpirun "
                "started ",
                info.local_size, " of ", info.size,
                " ranks on this host; expected the "
                "host of rank 0, as in mpirun -x MASTER_ADDR=HOST");
  return address;
}

Address read_slurm(WorldInfo& info) {
  constexpr const char* kSetter = "srun has";
  info.rank = number("SLURM_PROCID", 0, kSetter);
  info.size =
      number(variable("SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS", 1,
             kSetter);
  info.local_rank = number("SLURM_LOCALID", 0, kSetter);
  const std::string tasks = first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  info.local_size =
      tasks.empty() ? info.size : tasks_of_node(tasks, number("SLURM_NODEID", 0, kSetter));
  const std::string hosts =
      first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  std::string job = first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job.empty()) job.append(".").append(first_of({"SLURM_STEP_ID", "SLURM_STEPID"}));
  if (!job.empty()) info.job = "slurm-" + job;
  const bool is_one_host = info.local_size == info.size;
  return overridden(
      {is_one_host ? "127.0.0.1" : first_host(hosts), job.empty() ? "" : port_of(job)});
}

Address read_launcher(WorldInfo& info) {
  const auto is_set = [](std::initializer_list<const char*> names) {
    return !first_of(names).empty();
  };
  if (is_set({"RANK", "WORLD_SIZE", "LOCAL_RANK"})) return read_torchrun(info);
  if (is_set({"OMPI_COMM_WORLD_RANK"})) return read_open_mpi(info);
  if (is_set({"SLURM_PROCID"})) return read_slurm(info);
  return read_torchrun(info);  // names what is missing
}

// Whether this program launched the ranks. TRIREME_JOB is then the launch's random name, which the
// ranks inherit. If a rank starts torchrun, that makes its own ranks.
bool is_own_launch() {
  const std::string job = variable("TRIREME_JOB");
  return !job.empty() && variable("TRIREME_LAUNCH") == job &&
         variable("TORCHELASTIC_RUN_ID").empty();
}

// Whether `store` was inherited from another launch.
bool is_inherited(const std::string& store) {
  const std::string launch = variable("TRIREME_LAUNCH");
  return !launch.empty() && !is_own_launch() && store.find(launch) != std::string::npos;
}

}  // namespace

bool is_launched() {
  const std::string tasks = variable("SLURM_STEP_NUM_TASKS");
  return !first_of({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}).empty() ||
         (!variable("SLURM_PROCID").empty() && !tasks.empty() && tasks != "1");
}

WorldInfo world_info() {
  WorldInfo info;
  const Address address = read_launcher(info);
  TRIREME_CHECK(info.rank < info.size, "environment variable RANK is ", info.rank,
                "; expected below WORLD_SIZE = ", info.size);
  const bool has_address = !address.host.empty() && !address.port.empty();
  info.store = variable("TRIREME_STORE");
  if (is_inherited(info.store)) info.store = "";
  TRIREME_CHECK(
      info.store.empty() || (info.store.starts_with("file:") && info.store.size() > 5),
      "environment variable TRIREME_STORE is \"", info.store,
      "\"; expected file:PATH, a new file that all ranks see (for TCP set MASTER_ADDR and "
      "MASTER_PORT instead)");
  if (info.store.empty() && has_address) {
    info.store = "tcp://" + address.host + ":" + address.port;
  }
  const std::string given = variable("TRIREME_JOB");
  if (!given.empty() && (is_own_launch() || given != variable("TRIREME_LAUNCH"))) info.job = given;
  TRIREME_CHECK(!variable("TRIREME_JOB").empty() || !info.store.empty(),
                "environment variables TRIREME_JOB, MASTER_ADDR and MASTER_PORT are not set; "
                "expected the first, or the other two");
  const bool is_believed = info.store.empty() || is_own_launch();
  info.is_one_host = !info.job.empty() && info.local_size == info.size && is_believed;
  info.interface = variable("GLOO_SOCKET_IFNAME");
  info.listen = variable("TRIREME_LISTEN");
  return info;
}

}  // namespace trireme::comm
