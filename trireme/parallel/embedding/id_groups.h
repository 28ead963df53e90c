// The distinct ids of a list, and where each occurs in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::parallel::inline internal {

struct IdGroups {
  std::vector<int64_t> ids;  // [n] distinct, ascending
  std::vector<int64_t>
      first;  // [n + 1] id i occurs at places[first[i]] to places[first[i + 1] - 1]
  std::vector<int32_t> places;  // [m] by id, in one ascending

  int64_t size() const { return std::ssize(ids); }
  // [m]: for each place of the list, the number of its id.
  std::vector<int32_t> group_of_place() const;
};

// values: [m] in [0, limit), or any numbers if the limit is above 2^32; fewer than 2^31 of them
IdGroups group_ids(std::span<const int64_t> values, int64_t limit);

}  // namespace trireme::parallel::inline internal
