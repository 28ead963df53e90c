// The runs that `trireme verify` compares: two configs, each in fp32 and in fp64, trained for a few
// steps by this program itself with their gradients and checkpoints kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::cli {

// One side of a comparison.
struct TwinSide {
  std::string name;                      // "A"
  std::string config;                    // a TOML file
  std::vector<std::string> overrides{};  // "--parallel.tensor=2"
  int num_ranks = 1;
};

struct TwinRun {
  std::string side;       // "A"
  std::string precision;  // "fp32"
  std::filesystem::path folder;
};

struct TwinOptions {
  TwinSide a;
  TwinSide b;
  std::filesystem::path folder;  // new or empty; has the four runs and what they have printed
  int64_t steps = 3;
  train::Offer offer;
};

// Refuses sides that are to compute different things, before anything runs.
// Throws: ConfigError with the keys that differ and must not
void check_sides(const TwinOptions& options);

// Trains one after the other: A and B in fp32, A and B in fp64. A folder with both precisions of a
// side holds the weights and states of every step: 2 * steps * (1 + states + 1) times the weights.
// on_run: called before each, and after it with its seconds
// Throws: ConfigError with a run's own last line when it fails, or when the disk lacks the room
std::vector<TwinRun> train_twins(
    const TwinOptions& options,
    const std::function<void(const TwinRun& run, double seconds)>& on_run);

}  // namespace trireme::cli
