// What a run reads of each source of a blend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/blend/blend.h"

namespace trireme::train {

struct SourceUse {
  std::string name{};
  std::string about{};  // such as "12345 tokens"
  double share = 0;     // of the run's samples
  int64_t samples = 0;  // that the source has
  double passes = 0;    // over these, in the whole run
};

// Of a run of so many samples. None without a blend.
std::vector<SourceUse> source_uses(const dataset::Blend* blend, int64_t num_samples);

// Checks that no source begins again in a run of so many steps, if the blend does not repeat them.
// Throws: ConfigError with the source that would be the first, and the number of steps possible
void require_fresh_samples(const dataset::Blend* blend, const dataset::BatchLoader& batches,
                           int64_t num_steps);

}  // namespace trireme::train
