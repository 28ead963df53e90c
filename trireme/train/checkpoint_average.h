// The average of several checkpoints' weights, as a new run.
// Source: Izmailov et al. 2018, arXiv:1803.05407
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

struct CheckpointAverageOptions {
  // Checkpoint i of n counts decay^(n-1-i) times as much as the last one. 1: all count the same.
  double decay = 1;
  checkpoint::OnProgress on_progress{};  // in bytes that are read
};

struct CheckpointAverage {
  std::vector<std::filesystem::path> checkpoints{};  // that were read, in the given order
  std::vector<double> weights{};                     // of each in the average; their sum is 1
  int64_t step = 0;                                  // of the last, and of the new one
  int64_t num_averaged = 0;                          // tensors
  int64_t num_taken = 0;                             // tensors that are the last one's
};

// Writes the folder of a new run with one checkpoint, which everything that reads checkpoints can
// use, and which training can go on from. Weights, fp32 masters and buffers of floats are averaged
// in fp64 and rounded once to their dtype; a weight with a master is the average of the masters.
// The step, the optimizer's other states, the callbacks' and integers are those of the last
// checkpoint. Residuals of gradient compression are left out.
// paths: at least two, oldest first, each as for find_checkpoint()
// Memory: three parts of a tensor in fp64, of 32 MiB as it is saved; of a tensor whose rows are
//         larger than 1 MiB the whole
// Throws: ConfigError for less than two checkpoints, one that is listed twice, and a decay that is
//         not above 0 and at most 1; CheckpointError when they are not of one model, or hold
//         weights that are not finite; as DerivedRun and checkpoint::save() when it cannot be
//         written
CheckpointAverage average_checkpoints(std::span<const std::filesystem::path> paths,
                                      const std::filesystem::path& output, const Offer& offer,
                                      const CheckpointAverageOptions& options = {});

}  // namespace trireme::train
