// How `trireme bench comm` shows results: a table for people, JSON for programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/cli/bench/bench_comm.h"

namespace trireme::cli {

// The column names, in one line, with a column for each peer.
std::string table_header(const std::vector<std::string>& peers);
// One line of the table, as wide as the header.
std::string table_row(const CommResult& result, const std::vector<std::string>& peers);

// A list of objects: operation, transport, memory, dtype, bytes, ranks, microseconds,
// p99_microseconds, algorithm_bandwidth_gbps, bus_bandwidth_gbps, memcpy_microseconds,
// memcpy_ratio; for each peer P that was measured P_microseconds and ratio_P.
std::string json_list(std::span<const CommResult> results);

// One result as one line, and back: how a rank or a peer's program hands it to the launcher.
// read_line takes what is not about time (operation, transport, memory, dtype, bytes, ranks) and
// the times; the rest follows from them. memcpy_microseconds may be absent.
// Throws: Error when the line is no such object
std::string write_line(const CommResult& result);
CommResult read_line(const std::string& line);

}  // namespace trireme::cli
