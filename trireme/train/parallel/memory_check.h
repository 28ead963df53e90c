// Checks whether a run can fit the machine at all, before anything of the model is allocated.
#pragma once

#include <cstdint>

#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// The least memory a rank needs, in bytes: its share of weights, gradients and optimizer states,
// what one microbatch's forward keeps, and the samples of a step. The mean over pipeline stages.
// Excludes optimizer states on disk, buckets, gathered weights and libtorch itself.
struct MemoryNeed {
  double states = 0;
  double activations = 0;
  double samples = 0;
  double total() const { return states + activations + samples; }
};
MemoryNeed least_memory(const RunConfig& config);

// Throws: ConfigError when `num_ranks` ranks, all on this machine, need more than
//         `available_bytes`, with the largest part and the keys that reduce it
void check_memory(const RunConfig& config, int num_ranks, int64_t available_bytes);

}  // namespace trireme::train::inline internal
