// What the processes of a run with parameter servers agree on.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/parallel/server/state/consistency.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

// The same in the director, every server and every worker of a run.
struct ServerRun {
  std::vector<Piece> pieces;  // of key_ranges(), with as many shards as servers
  int64_t shards = 1;
  int64_t copies = 1;  // of each shard, on so many servers in a chain
  Consistency consistency{};
  std::string secret{};  // drawn for the run; only who knows it is let in
  // Anything else that must be the same, such as the text of the config. A peer of another run is
  // refused in one line.
  std::string config{};
  // How long a worker waits for an answer, and everybody for the others at the start.
  std::chrono::milliseconds timeout{300'000};
  // A peer without a sign of life for so long counts as dead.
  std::chrono::milliseconds silence{30'000};
};

// Whether server number `server` has a copy of `shard` at the start: the chain of shard i is servers
// i, i + 1, ..., and after the last comes the first.
inline bool has_at_start(const ServerRun& run, int64_t server, int64_t shard) {
  return server < run.shards && (server - shard + run.shards) % run.shards < run.copies;
}

}  // namespace trireme::parallel
