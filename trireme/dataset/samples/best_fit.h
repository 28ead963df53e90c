// Best-fit decreasing: places items into bins of one size, the largest first, each into the fullest
// bin that has room for it. Pure arithmetic.
// Source: Johnson 1974, J. Comput. System Sci. 8(3); of documents into the sequences of language
//         models: Ding et al. 2024, arXiv:2404.10830, algorithm 1
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::dataset {

// The items of all bins, one bin after the other.
struct PackedBins {
  std::vector<uint32_t> items;  // indices, in the order in which they were placed
  std::vector<int64_t> ends;    // of each bin, in `items`

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  std::span<const uint32_t> bin(int64_t index) const {
    const int64_t begin = index == 0 ? 0 : ends[static_cast<size_t>(index) - 1];
    return std::span(items).subspan(static_cast<size_t>(begin),
                                    static_cast<size_t>(ends[static_cast<size_t>(index)] - begin));
  }
};

// Items of size 0 are placed nowhere. Of items that are alike the first comes first, and of bins
// that are equally full the one that became so first.
// Memory: about 20 bytes per item, of which 4 stay. Time: O(n log room)
// Throws: InternalError for a size outside [0, room], ConfigError for 2^32 items or more
PackedBins best_fit_decreasing(std::span<const int64_t> sizes, int64_t room);

}  // namespace trireme::dataset
