// Decides which rank writes what. Every distinct box is written once, and replicas are spread over
// the ranks that hold them, so that files have similar sizes. Pure arithmetic on descriptions;
// touches no tensor and no file.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint::inline internal {

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

}  // namespace trireme::checkpoint::inline internal
