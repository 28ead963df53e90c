// The median of a few measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::inline internal {

// For an even count the mean of the middle two; 0 for none.
template <typename Number>
Number median(std::vector<Number> numbers) {
  if (numbers.empty()) return 0;
  std::ranges::sort(numbers);
  const size_t count = numbers.size();
  const Number below = numbers[(count - 1) / 2], above = numbers[count / 2];
  return below + (above - below) / 2;
}

}  // namespace trireme::inline internal
