#include "trireme/checkpoint/replicas.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"

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
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "" : ", ", rank);
  const bool tells_which = 2 * ranks.size() < num_holders;
  return concat("replicas differ: \"", name, "\" has different bits on rank ", text,
                tells_which ? "" : " (or on the others: there is no majority)",
                "; check that host's memory and resume from the last checkpoint");
}

}  // namespace trireme::checkpoint
