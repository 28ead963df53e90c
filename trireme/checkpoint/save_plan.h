// Who writes what: every distinct box once, replicas spread over the ranks that hold them so that
// the files come out alike in size. Pure arithmetic on descriptions; touches no tensor and no file.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

// "rank-000-of-002.safetensors"
std::string shard_name(int rank, int world_size);

// held_by[r]: what rank r holds, each tensor with one piece, this rank's box (maybe empty).
// Returns the tensors with all their pieces, each with the file of the rank that writes it; the
// checksums are still empty. The same on every rank, and from one run to the next.
// Throws: CheckpointError when ranks disagree about a tensor, or together do not hold it whole
std::map<std::string, TensorRecord> plan_save(
    std::span<const std::map<std::string, TensorRecord>> held_by);

}  // namespace trireme::checkpoint
