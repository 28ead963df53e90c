// What a step would take without a slow rank. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/watch/series/rank_blocks.h"

namespace trireme::watch {

struct WithoutRank {
  double step_seconds = 0;  // measured, the median over the steps
  double without = 0;       // the same with the rank as fast as its peers
  int64_t num_steps = 0;
};

// For each of the last steps: step' = step - max(own) + max(own'), where `own` are the ranks' own
// seconds (computing and data, no waiting) and own' has the median of the other ranks of its
// pipeline stage in place of the rank's; without such ranks the median of all others. What is not
// covered by the slowest rank's own seconds, such as exposed communication, stays as it was. The
// rank's own seconds are not raised.
// stages: of each rank, its pipeline stage
// Nothing when the columns own_seconds and step_seconds say nothing about the rank.
std::optional<WithoutRank> without_rank(const RankBlocks& ranks, const std::vector<int64_t>& stages,
                                        int64_t rank, int64_t to_step, size_t most_steps = 128);
inline constexpr const char* kWithoutRankFormula =
    "each step minus the slowest rank's own seconds, plus the slowest rank's own seconds with this "
    "rank at the median of the others in its pipeline stage; the median over the last steps";

struct Straggler {
  int64_t rank = 0;
  double ratio = 0;  // of its own seconds to the median of its pipeline stage
};
// The rank with the largest such ratio, each rank's being the median over the last steps; nothing
// when it is below 1.2. Ranks from `num_ranks` on, which train nothing, do not count.
std::optional<Straggler> find_straggler(const RankBlocks& ranks, const std::vector<int64_t>& stages,
                                        int64_t num_ranks, size_t most_steps = 16);

// Of each rank the median of its stage's values.
std::vector<double> stage_medians(const std::vector<float>& values,
                                  const std::vector<int64_t>& stages);

}  // namespace trireme::watch
