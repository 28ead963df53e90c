// Writes a checkpoint again as another number of ranks would save it.
#pragma once

#include <filesystem>

#include "trireme/checkpoint/offline/progress.h"
#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::checkpoint {

// Every rank is a thread with a file of its own.
inline constexpr int kMaxReshardRanks = 256;

// Writes `root`/step-…: the step, the state and every bit of the tensors as in `source`, in a file
// for each of `num_ranks` ranks. A tensor is cut as evenly as possible along dimension 0, or along
// its longest dimension if dimension 0 is shorter than the ranks are many. The new checkpoint loads
// at any layout, as every checkpoint does.
// Memory: one box of each rank, together about the largest tensor; and what save() knows, on each
//         rank, of every other rank's tensors: about 1.5 KB per tensor and pair of ranks
// Throws: ConfigError when num_ranks is not from 1 to kMaxReshardRanks, or when what save() knows
//         would take more than half of this machine's memory; CheckpointError when a checksum of
//         the source is wrong; otherwise as save()
void reshard(const SavedTensors& source, const std::filesystem::path& root, int num_ranks,
             const OnProgress& on_progress = {});

}  // namespace trireme::checkpoint
