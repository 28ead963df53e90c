// Makes a sparse model out of a dense one: every expert begins as a copy of the feed-forward, so
// training goes on from the dense model's loss.
// Source: Komatsuzaki et al. 2023, arXiv:2212.05055
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::tasks {

struct UpcycleOptions {
  // The sparse model's keys, such as model.experts, and any other of the new run's.
  std::span<const train::Override> overrides{};
  // Added to each expert's weights: normal numbers with this times the standard deviation of the
  // matrix they are added to, drawn by (train.seed, name, index).
  double noise = 0;
};

struct Upcycled {
  std::filesystem::path checkpoint;  // that was read
  int64_t step = 0;
  int64_t sparse_blocks = 0;
  int64_t experts = 0;
  int64_t dense_parameters = 0;
  int64_t parameters = 0;
};

// Reads the newest checkpoint of a dense run and writes the folder of a new run, which `trireme
// train OUTPUT/config.toml` continues at the same step: weights, optimizer states and averages of
// experts are copies, routers are drawn as in a new model. Compression's residuals are left out.
// Memory: the sparse run's checkpoint
// Throws: ConfigError for a model that has experts or no dense feed-forward to copy, overrides that
//         change anything but experts in the model, and routers whose weights do not sum to 1;
//         CheckpointError; Error when the output cannot be written
Upcycled upcycle(const std::filesystem::path& path, const std::filesystem::path& output,
                 const UpcycleOptions& options);

}  // namespace trireme::tasks
