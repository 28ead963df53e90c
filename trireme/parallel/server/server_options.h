// The options that all processes of a run with parameter servers share.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/parallel/server/state/consistency.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

// Must be equal in the director, in every server and in every worker of a run.
struct ServerRun {
  std::vector<Piece> pieces;  // from key_ranges(), with one shard per server
  int64_t shards = 1;
  int64_t copies = 1;  // of each shard: the length of its chain of servers
  Consistency consistency{};
  std::string secret{};  // drawn for the run; peers must know it to connect
  // Anything else that must be equal, such as the text of the config. A peer with another text is
  // refused with a one-line error.
  std::string config{};
  // Limit on a worker's wait for an answer, and on everyone's wait for the others at the start.
  std::chrono::milliseconds timeout{300'000};
  // A peer that is silent for this long counts as dead.
  std::chrono::milliseconds silence{30'000};
};

// Whether server number `server` has a copy of `shard` at the start: the chain of shard i is
// servers i, i + 1, ...; after the last server comes the first.
inline bool has_at_start(const ServerRun& run, int64_t server, int64_t shard) {
  return server < run.shards && (server - shard + run.shards) % run.shards < run.copies;
}

}  // namespace trireme::parallel
