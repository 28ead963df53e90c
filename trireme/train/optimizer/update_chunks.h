// In which portions a step goes over its shards: as many as fit what is in memory at a time. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trireme::train {

// What a shard brings with it.
struct ShardSize {
  int64_t elements = 0;                // of the weights
  std::vector<int64_t> state_bytes{};  // one a state; where shards are cut, in step with elements
};

// `count` elements of a shard from `first` on, flattened.
struct UpdatePiece {
  size_t shard = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const UpdatePiece&) const = default;
};
using UpdateChunk = std::vector<UpdatePiece>;

struct ChunkLimits {
  int64_t elements = 4 << 20;
  int64_t bytes = std::numeric_limits<int64_t>::max();  // of states, each rounded up to `unit`
  int64_t unit = 4096;
  bool may_cut = false;  // inside a shard, at multiples of `unit` bytes and so of 64 elements
};

// Every shard that has elements or states, in order, each element once. A chunk exceeds the limits
// only when it is one shard that may not be cut, or one `unit` a state.
std::vector<UpdateChunk> cut_into_chunks(std::span<const ShardSize> shards,
                                         const ChunkLimits& limits);

}  // namespace trireme::train
