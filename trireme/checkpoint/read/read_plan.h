// Assigns each chunk to the rank of a host that reads it for all ranks that want it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// The boxes that a rank wants from a checkpoint, one per tensor.
using WantedBoxes = std::map<std::string, mesh::Box>;

// Whether two of them want the same element.
bool any_in_common(std::span<const WantedBoxes> ranks);

// A chunk that several ranks want.
struct SharedChunk {
  const std::string& name;  // of the tensor
  const TensorRecord& record;
  const Piece& piece;
  const Chunk& chunk;
  uint64_t at = 0;            // where its bytes begin in the piece's
  uint64_t place = 0;         // and in the batch
  std::vector<int> takers{};  // all that want it
};

// Chunks that one rank reads and hands on together.
struct Batch {
  // Room for the reader's word on the batch, and the alignment of its chunks.
  static constexpr uint64_t kHeadBytes = 64;

  std::vector<SharedChunk> chunks{};
  uint64_t num_bytes = kHeadBytes;
  std::set<int> takers{};  // without the reader
};

struct ReadPlan {
  std::vector<std::vector<Batch>> by_reader;  // [rank]: in the order in which it reads them
  std::unordered_set<const Chunk*> shared;    // all chunks of all batches

  // In each round every rank reads at most one batch.
  size_t num_rounds() const;
  uint64_t largest_batch() const;
};

// Every chunk that two or more ranks want is read by one of them; each reads about as many bytes.
// The same on every rank. `manifest` must outlive the plan.
// batch_bytes: of a batch, at most, unless one chunk has more
ReadPlan plan_reads(const Manifest& manifest, std::span<const WantedBoxes> ranks,
                    uint64_t batch_bytes);

}  // namespace trireme::checkpoint
