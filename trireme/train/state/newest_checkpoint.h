// The checkpoint with which a run goes on, of those in its folder and in faster places.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {

// Checkpoints that are not whole, each with what is wrong.
using DamagedCheckpoints = std::map<std::filesystem::path, std::string>;

// A checkpoint outside of the run's folder.
struct FastCheckpoint {
  std::string place;  // for the user: "memory"
  std::filesystem::path folder;
  int64_t step = 0;
  std::chrono::seconds age{0};
};

struct NewestCheckpoint {
  std::filesystem::path path{};  // empty: there is no checkpoint at all
  checkpoint::Summary summary{};
  // For the user: on newer ones that are damaged, and on what each place has.
  std::vector<std::string> notes{};
};

// The newest one in `root` or `fast` that is not `damaged` and whose manifest can be read; of the
// same step the first of `fast`.
// Throws: CheckpointError when there are some and none is whole
NewestCheckpoint newest_checkpoint(const std::filesystem::path& root,
                                   const DamagedCheckpoints& damaged,
                                   std::span<const FastCheckpoint> fast);

}  // namespace trireme::train
