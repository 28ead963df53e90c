// The results of `trireme bench comm`: a table for people, JSON for programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_comm.h"

namespace trireme::cli::inline internal {

// The column names in one line, with a column for each peer.
std::string table_header(const std::vector<std::string>& peers);
// One line of the table, as wide as the header.
std::string table_row(const CommResult& result, const std::vector<std::string>& peers);

// A list of objects: operation, transport, memory, dtype, bytes, ranks, microseconds,
// p99_microseconds, algorithm_bandwidth_gbps, bus_bandwidth_gbps, memcpy_microseconds,
// memcpy_ratio; and for each peer P that was measured P_microseconds and ratio_P.
std::string json_list(std::span<const CommResult> results);

// One result as one line, and the reverse. Ranks and peers' programs pass results to the launcher
// this way. read_line reads the times and what is not derived from them (operation, transport,
// memory, dtype, bytes, ranks); the rest follows. memcpy_microseconds may be absent.
// Throws: Error when the line is not such an object
std::string write_line(const CommResult& result);
CommResult read_line(const std::string& line);

}  // namespace trireme::cli::inline internal
