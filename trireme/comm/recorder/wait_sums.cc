#include "trireme/comm/recorder/wait_sums.h"

#include <algorithm>
#include <new>

#include "trireme/base/clock.h"

namespace trireme::comm {

void WaitSums::add(std::string_view group, int world_rank,
                   std::chrono::nanoseconds waited) noexcept {
  if (world_rank < 0) return;
  try {
    const std::lock_guard lock(mutex_);
    auto found = groups_.find(group);
    if (found == groups_.end()) {
      found =
          groups_.try_emplace(groups_.size() < kMostGroups ? std::string(group) : "other").first;
    }
    auto& sums = found->second;
    const auto rank = static_cast<size_t>(world_rank);
    if (rank >= sums.size()) sums.resize(rank + 1);
    sums[rank] += waited;
  } catch (const std::bad_alloc&) {
  }
}

std::vector<WaitSums::Sum> WaitSums::take_largest(size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<Sum> all;
  for (const auto& [group, sums] : groups_) {
    for (size_t rank = 0; rank < sums.size(); ++rank) {
      if (sums[rank].count() > 0) {
        all.push_back({group, static_cast<int>(rank), in_seconds(sums[rank])});
      }
    }
  }
  const size_t count = std::min(most, all.size());
  const auto by_seconds = [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; };
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    by_seconds);
  all.resize(count);
  for (const Sum& sum : all) {
    groups_.find(sum.group)->second[static_cast<size_t>(sum.world_rank)] = {};
  }
  return all;
}

}  // namespace trireme::comm
