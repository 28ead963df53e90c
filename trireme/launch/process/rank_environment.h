// The variables by which a launched process knows its rank.
#pragma once

#include <string>

#include "trireme/launch/process/child.h"

namespace trireme::launch::inline internal {

struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
};

// `variables` with torchrun's RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, TRIREME_JOB, and
// OMP_NUM_THREADS = cores / local ranks unless it is set. Without those of another launcher that
// started this one.
Environment rank_environment(Environment variables, const RankPlace& place, const std::string& job);

}  // namespace trireme::launch::inline internal
