// Runs the cases of `trireme bench comm` on one group of ranks, times them, and writes the results:
// a table for people, JSON for programs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_case.h"
#include "trireme/comm/communicator.h"

namespace trireme::cli {

struct Timing {
  double median_microseconds = 0;
  double p99_microseconds = 0;
};

// How often an operation runs: `num_batches` batches of `batch` calls, each batch timed as a whole.
struct BatchPlan {
  int64_t batch = 1;
  int64_t num_batches = 1;
};

// Batches of at least 20 us, so that reading the clock (about 30 ns) does not matter. As many as
// fit `budget_seconds`, but at least five.
BatchPlan plan_batches(double operation_seconds, double budget_seconds);

// Median and 99th percentile (nearest rank) of the times of one operation.
Timing summarize(std::vector<double> microseconds);

// Warms up, then runs the operation in batches. All ranks meet in a barrier before each batch, and
// the time of a batch is that of its slowest rank. A rank that leaves early (a root that only
// sends) therefore does not make an operation look too fast. Ranks agree on every count.
// Collective: every rank, with an operation that matches on all
Timing measure(comm::Communicator& group, const std::function<void()>& operation,
               double budget_seconds);

// One line of the report. Bandwidths are in 10^9 bytes per second.
struct CommResult {
  CommCase what;
  std::string transport = "";
  int num_ranks = 0;
  double microseconds = 0;  // of one operation, median
  double p99_microseconds = 0;
  double memcpy_microseconds = 0;  // for the same bytes, on all ranks at once
  // all_reduce: of a loop on every rank at once that reads as many streams as there are ranks, each
  // of bytes / ranks, and writes their sum to as many. 0: not measured
  double loop_microseconds = 0;
  std::map<std::string, double> peers = {};  // microseconds of gloo, mpi

  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
  // Speed relative to memcpy: memcpy_microseconds / microseconds.
  double memcpy_ratio() const;
  // Speed relative to that loop, the limit of an all-reduce in shared memory; 0 when not measured.
  double loop_ratio() const;
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

// The column names in one line, with a column for each peer.
std::string table_header(const std::vector<std::string>& peers);
// One line of the table, as wide as the header.
std::string table_row(const CommResult& result, const std::vector<std::string>& peers);

// A list of objects: operation, transport, memory, dtype, bytes, ranks, microseconds,
// p99_microseconds, algorithm_bandwidth_gbps, bus_bandwidth_gbps, memcpy_microseconds,
// memcpy_ratio; of all_reduce also loop_microseconds and loop_ratio; and for each peer P that was
// measured P_microseconds and ratio_P.
std::string json_list(std::span<const CommResult> results);

// One result as one line, and the reverse. Ranks and peers' programs pass results to the launcher
// this way. read_line reads the times and what is not derived from them (operation, transport,
// memory, dtype, bytes, ranks); the rest follows. memcpy_microseconds and
// loop_microseconds may be absent.
// Throws: Error when the line is not such an object
std::string write_line(const CommResult& result);
CommResult read_line(const std::string& line);

}  // namespace trireme::cli
