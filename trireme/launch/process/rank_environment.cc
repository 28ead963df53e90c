#include "trireme/launch/process/rank_environment.h"

#include <algorithm>

#include "trireme/base/machine/cores.h"

namespace trireme::launch::inline internal {

Environment rank_environment(Environment variables, const RankPlace& place,
                             const std::string& job) {
  // Set by another launcher, if one of its ranks started this one.
  std::erase_if(variables,
                [](const auto& each) { return each.first.starts_with("TORCHELASTIC_"); });
  variables["RANK"] = std::to_string(place.rank);
  variables["LOCAL_RANK"] = std::to_string(place.local_rank);
  variables["WORLD_SIZE"] = std::to_string(place.size);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(place.local_size);
  variables["TRIREME_JOB"] = job;
  variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, num_cores() / place.local_size)));
  return variables;
}

}  // namespace trireme::launch::inline internal
