// Runs the cases of `trireme bench comm` on one group of ranks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_case.h"
#include "trireme/comm/communicator.h"

namespace trireme::cli::inline internal {

// One line of the report. Bandwidths are in 10^9 bytes per second.
struct CommResult {
  CommCase what;
  std::string transport = "";
  int num_ranks = 0;
  double microseconds = 0;  // of one operation, median
  double p99_microseconds = 0;
  double memcpy_microseconds = 0;            // for the same bytes, on all ranks at once
  std::map<std::string, double> peers = {};  // microseconds of gloo, mpi

  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
  // Speed relative to memcpy: memcpy_microseconds / microseconds.
  double memcpy_ratio() const;
  // How many times faster than the peer; 0 when the peer was not measured.
  double ratio(const std::string& peer) const;
};

using OnCase = std::function<void(const CommCase& what)>;

// Runs every case once on patterns with a known result, then times it on zeros (in-place sums would
// overflow). `on_case`, if set, is called before each case.
// Collective: every rank, with the same cases
// Throws:     InternalError on every rank when a result is wrong, with operation, bytes, rank and
//             element; ConfigError when symmetric memory is too small
std::vector<CommResult> run_cases(comm::Communicator& group, const std::string& transport,
                                  const std::vector<CommCase>& cases, double seconds_per_case,
                                  const OnCase& on_case = {});

}  // namespace trireme::cli::inline internal
