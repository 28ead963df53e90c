#include "trireme/comm/rendezvous/rendezvous_variables.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/patterns.h"
#include "trireme/comm/rendezvous/launcher_values.h"

namespace trireme::comm {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number(const char* name, int minimum, const char* setter) {
  return whole_number(name, variable(name), minimum, setter);
}

// The first of `names` that is set.
std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return "";
}

// "" when there is no name.
std::string port_of(const std::string& job) {
  return job.empty() ? "" : std::to_string(port_of_job(job));
}

// The number of tasks on node `index`.
int tasks_of_node(const std::string& text, int index) {
  const std::vector<int> counts = expand_counts("SLURM_STEP_TASKS_PER_NODE", text);
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
  const Address address =
      overridden({info.local_size == info.size ? "127.0.0.1" : "", port_of(job)});
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
  // The step's number: the job's may be of more tasks than this srun has started.
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
  // Rank 0 is on the first host.
  const bool has_head = !is_one_host && !hosts.empty();
  return overridden({is_one_host ? "127.0.0.1"
                     : has_head  ? expand_hosts("SLURM_STEP_NODELIST", hosts).front()
                                 : "",
                     port_of(job)});
}

Address read_launcher(WorldInfo& info) {
  const auto is_set = [](std::initializer_list<const char*> names) {
    return !first_of(names).empty();
  };
  // torchrun first: srun or mpirun may have started it.
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

bool is_rank_variable(std::string_view variable) {
  static constexpr std::string_view kNames[] = {"RANK",
                                                "WORLD_SIZE",
                                                "LOCAL_RANK",
                                                "LOCAL_WORLD_SIZE",
                                                "GROUP_RANK",
                                                "GROUP_WORLD_SIZE",
                                                "ROLE_RANK",
                                                "ROLE_WORLD_SIZE",
                                                "MASTER_ADDR",
                                                "MASTER_PORT",
                                                "TRIREME_JOB",
                                                "TRIREME_LAUNCH",
                                                "TRIREME_STORE",
                                                "TRIREME_EPOCH",
                                                "TRIREME_ERROR_FD",
                                                "TRIREME_AGENT_FD",
                                                "TRIREME_READY_FD",
                                                "SLURM_PROCID",
                                                "SLURM_LOCALID",
                                                "SLURM_STEP_NUM_TASKS"};
  static constexpr std::string_view kPrefixes[] = {"TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMIX_",
                                                   "PMI_"};
  return std::ranges::find(kNames, variable) != std::end(kNames) ||
         std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

bool is_launched() {
  const std::string tasks = variable("SLURM_STEP_NUM_TASKS");
  return !first_of({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}).empty() ||
         (!variable("SLURM_PROCID").empty() && !tasks.empty() && tasks != "1");
}

bool counts_pods() {
  return !variable("WORLD_SIZE").empty() && variable("LOCAL_RANK").empty() &&
         variable("LOCAL_WORLD_SIZE").empty();
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

namespace {

constexpr size_t kMinimumLength = 16;
constexpr size_t kMaximumLength = 4096;

std::string read_token_file(const std::string& path) {
  // Do not wait for the writer of a FIFO.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  TRIREME_CHECK(file.is_open(), "TRIREME_TOKEN_FILE is \"", path,
                "\", which cannot be read: ", std::strerror(errno), "; ", kTokenAdvice);
  struct stat status {};
  std::array<char, kMaximumLength + 1> text;
  const bool is_file = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t size = is_file ? read(file.get(), text.data(), text.size()) : 0;
  const int code = errno;
  TRIREME_CHECK(is_file, "TRIREME_TOKEN_FILE is \"", path, "\", which is not a file; ",
                kTokenAdvice);
  TRIREME_CHECK(status.st_uid == geteuid(), "TRIREME_TOKEN_FILE is \"", path,
                "\", which belongs to user ", status.st_uid, "; expected this user's, ", geteuid());
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", status.st_mode & 07777);
  TRIREME_CHECK((status.st_mode & 077) == 0, "TRIREME_TOKEN_FILE is \"", path, "\", whose mode ",
                mode, " lets others in; expected 0600: chmod 600 ", path);
  TRIREME_CHECK(size >= 0, "TRIREME_TOKEN_FILE is \"", path,
                "\", which cannot be read: ", std::strerror(code));
  return {text.data(), static_cast<size_t>(size)};
}

}  // namespace

std::string job_token() {
  const char* const given = std::getenv("TRIREME_TOKEN");
  const char* const path = std::getenv("TRIREME_TOKEN_FILE");
  const bool is_given = given != nullptr && *given != '\0';
  if (!is_given && (path == nullptr || *path == '\0')) return "";
  // An editor or echo ends a file with a newline.
  const std::string token(trimmed(is_given ? std::string(given) : read_token_file(path)));
  const std::string where =
      is_given ? "the environment variable TRIREME_TOKEN" : concat("the file ", path);
  TRIREME_CHECK(
      token.size() >= kMinimumLength && token.size() <= kMaximumLength, where, " holds ",
      token.size() > kMaximumLength ? concat("more than ", kMaximumLength) : concat(token.size()),
      " characters; expected a token of ", kMinimumLength, " to ", kMaximumLength, "; ",
      kTokenAdvice);
  return token;
}

}  // namespace trireme::comm
