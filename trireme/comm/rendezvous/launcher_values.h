// The forms in which launchers and schedulers write numbers and hosts. Reads no environment:
// callers pass the variable's name, for errors, and its value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

// More hosts than any cluster has. A longer list is refused before it is expanded.
inline constexpr size_t kMaxJobHosts = 100'000;

// setter: who sets the variable, as in "srun has".
// Throws: ConfigError unless `value` is a decimal number from `minimum` on
int whole_number(std::string_view variable, std::string_view value, int minimum,
                 std::string_view setter);

// Slurm's compressed list: "node[003-004,12]-ib,login1" -> node003-ib, node004-ib, node12-ib,
// login1. A name may have several brackets; the last one varies fastest.
// Throws: ConfigError for an empty or malformed list, and for more than kMaxJobHosts hosts
std::vector<std::string> expand_hosts(std::string_view variable, std::string_view list);

// Slurm's counts per host: "2(x3),1" -> 2, 2, 2, 1.
// Throws: ConfigError for an empty or malformed list, and for more than kMaxJobHosts hosts
std::vector<int> expand_counts(std::string_view variable, std::string_view list);

// A port above those of services and below those given to clients. Every process that knows the
// job's name derives the same one, and other jobs rarely do.
int port_of_job(std::string_view job);

}  // namespace trireme::comm
