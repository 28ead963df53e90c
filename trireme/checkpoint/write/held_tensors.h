// What ranks tell each other before a save: which boxes of which tensors they hold.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint::inline internal {

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

}  // namespace trireme::checkpoint::inline internal
