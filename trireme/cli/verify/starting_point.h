// Runs that begin again at a step of another run: its checkpoint becomes the first of a new folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/train/config/config.h"

namespace trireme::cli {

struct StartingPoint {
  std::filesystem::path run;         // the other run's folder
  std::filesystem::path checkpoint;  // in it
  int64_t step = 0;                  // finished before it
  int num_ranks = 1;                 // that saved it
  train::RunConfig config{};         // the run's, for any number of data ranks
};

// The newest checkpoint of a run of at most `last_step` steps; nothing: of any.
// Throws: ConfigError when there is none, or when the run's steps cannot be made again: with
//         parameter servers or staleness ranks do not take steps together; CheckpointError when it
//         cannot be read
StartingPoint find_start(const std::filesystem::path& run, std::optional<int64_t> last_step,
                         const train::Offer& offer);

// For those who need all ranks in the same step.
// Throws: ConfigError when the run has learners
void refuse_learners(const StartingPoint& start);

// Makes the folder of a run that goes on from there. The checkpoint is linked, not copied, unless
// its values are wanted in another precision: fp32 and fp64 become each other.
// folder: new. precision: of the new run
// Memory: with another precision the whole checkpoint
// Throws: ConfigError when the folder exists, or when the run is neither in fp32 nor in fp64 and
//         `precision` is not its own
void begin_at(const StartingPoint& start, const std::filesystem::path& folder,
              c10::ScalarType precision);

// The keys that keep a training to its steps: without commands, stores and stops of its own. For
// the command line.
std::vector<std::string> undisturbed_keys();
// The keys of a layout of data ranks alone.
std::vector<std::string> plain_layout_keys();

}  // namespace trireme::cli
