// Decides which rank writes what, from the boxes of tensors that each rank holds, which ranks
// exchange before a save. Every distinct box is written once, and replicas are spread over the
// ranks that hold them, so that files have similar sizes. Also finds the ranks that differ, among
// ranks that should all have the same bits. Pure arithmetic on descriptions; touches no tensor and
// no file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// Places in `digests` whose digest is not the most frequent one; none when all are equal. On a tie
// the lowest digest wins.
std::vector<size_t> minority(std::span<const std::string_view> digests);

// "replicas differ: "w" has different bits on rank 3; check that host's memory ...". ranks: of the
// minority, out of num_holders.
std::string replicas_differ(const std::string& name, std::span<const int> ranks,
                            size_t num_holders);

// This rank's entries in the form that plan_save() takes.
// Throws: CheckpointError for a partial sum, a bad name or one that is listed twice
std::map<std::string, TensorRecord> describe(std::span<const Entry> entries, int world_rank,
                                             int world_size);

// The tensors of each rank, and rank 0's state.
struct Held {
  std::vector<std::map<std::string, TensorRecord>> by_rank;
  std::string state;
};
// descriptions[r]: rank r's, as a manifest's text
// Throws: CheckpointError when ranks save different steps
Held held_at(int64_t step, std::span<const std::string> descriptions);

// "rank-000-of-002.safetensors"
std::string shard_name(int rank, int world_size);

// held_by[r]: the tensors of rank r, each with one piece, this rank's box. If another rank saves
// the box in any case, the first piece is empty and the second is the box. Returns
// the tensors with all their pieces and, for each piece, the file of the rank that writes it.
// Checksums are still empty. The result is the same on every rank and in every run.
// Throws: CheckpointError when ranks disagree about a tensor, or together do not hold all of it
std::map<std::string, TensorRecord> plan_save(
    std::span<const std::map<std::string, TensorRecord>> held_by);

// A box that several ranks hold, ascending.
struct ReplicatedBox {
  std::string name;
  mesh::Box box;
  std::vector<int> holders;
};
std::vector<ReplicatedBox> replicated_boxes(
    std::span<const std::map<std::string, TensorRecord>> held_by);

}  // namespace trireme::checkpoint
