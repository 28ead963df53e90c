#include "trireme/launch/jobs/job_hosts.h"

#include "trireme/base/error.h"
#include "trireme/comm/rendezvous/launcher_values.h"

namespace trireme::launch {

// The innermost launcher comes first: mpirun may run within a Slurm job.
std::optional<JobHosts> read_job_hosts(const JobView& view) {
  for (const auto read : {read_kubernetes, read_open_mpi, read_slurm, read_pbs, read_lsf}) {
    if (std::optional<JobHosts> hosts = read(view)) return hosts;
  }
  return std::nullopt;
}

const std::string& value_of(const Variables& variables, std::string_view name) {
  static const std::string kNone;
  const auto found = variables.find(name);
  return found == variables.end() ? kNone : found->second;
}

std::string_view first_set(const Variables& variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!value_of(variables, name).empty()) return name;
  }
  return "";
}

int number_of(const Variables& variables, std::string_view name, int minimum,
              std::string_view setter) {
  return comm::whole_number(name, value_of(variables, name), minimum, setter);
}

const std::string& needed(const Variables& variables, std::string_view name,
                          std::string_view advice) {
  const std::string& value = value_of(variables, name);
  TRIREME_CHECK(!value.empty(), "environment variable ", name, " is not set; ", advice);
  return value;
}

}  // namespace trireme::launch
