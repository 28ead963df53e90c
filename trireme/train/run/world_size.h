// How many of an elastic job's ranks take part in training.
#pragma once

#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// The policy for the mesh when ranks leave and join: only the data axis shrinks and grows, whatever
// parallel.data says. All other axes stay what the config says, so the ranks are a multiple of
// tensor * pipeline * context. parallel.zero and parallel.shard = 0 shard over the data ranks that
// there are; another parallel.shard stays and must divide them, and so must parallel.expert those
// of data and context. The global batch stays, and so do its samples.
// Returns the largest number of ranks, at most `available`, for which the config is valid. The
// others are spares. Every rank finds the same.
// Throws: ConfigError when there is none, with what is wrong with `available` ranks
int largest_world(const RunConfig& config, int available);

}  // namespace trireme::train::inline internal
