#include "trireme/checkpoint/replicas.h"

#include <algorithm>
#include <map>

#include "trireme/base/replicas_differ.h"

namespace trireme::checkpoint {

std::vector<size_t> minority(std::span<const std::string_view> digests) {
  std::map<std::string_view, int> votes;
  for (const std::string_view each : digests) ++votes[each];
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (digests[i] != most->first) places.push_back(i);
  }
  return places;
}

std::string replicas_differ(const std::string& name, std::span<const int> ranks,
                            size_t num_holders) {
  return to_string(ReplicasDiffer{.tensor = name,
                                  .ranks = {ranks.begin(), ranks.end()},
                                  .has_majority = 2 * ranks.size() < num_holders});
}

}  // namespace trireme::checkpoint
