// Profiles whose every nanosecond is known.
#pragma once

#include "trireme/train/profile/spans.h"

namespace trireme::train {

// A rank with one step, number 6, from 0 to `end_ns`: a tenth loads data, the rest is forward and
// backward.
inline RankProfile one_step(int rank, int64_t end_ns) {
  RankProfile profile{.rank = rank};
  profile.steps = {{6, {0, end_ns}}};
  profile.phases = {{Phase::kData, {0, end_ns / 10}},
                    {Phase::kForwardBackward, {end_ns / 10, end_ns}}};
  profile.groups = {{"data", {0, 1}}};
  return profile;
}

}  // namespace trireme::train
