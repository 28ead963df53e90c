// Divides a step's shards into chunks that fit the memory available at a time. Pure arithmetic.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trireme::train {

// The sizes of a shard and its states.
struct ShardSize {
  int64_t elements = 0;                // of the weights
  std::vector<int64_t> state_bytes{};  // one per state; grows with elements if shards are cut
};

// `count` elements of a flattened shard from `first` on.
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
  bool may_cut = false;  // inside a shard, at multiples of `unit` bytes and of 64 elements
};

// Covers every shard that has elements or states, in order, each element once. A chunk exceeds the
// limits only if it is one shard that may not be cut, or one `unit` per state.
std::vector<UpdateChunk> cut_into_chunks(std::span<const ShardSize> shards,
                                         const ChunkLimits& limits);

}  // namespace trireme::train
