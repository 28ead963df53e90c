// Small arithmetic: rounding up to whole units, and the median of a few measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme {

// The smallest multiple of `unit` that is at least `value`.
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// The median. For an even count the mean of the middle two; 0 for none.
template <typename Number>
Number median(std::vector<Number> numbers) {
  if (numbers.empty()) return 0;
  std::ranges::sort(numbers);
  const size_t count = numbers.size();
  const Number below = numbers[(count - 1) / 2], above = numbers[count / 2];
  return below + (above - below) / 2;
}

}  // namespace trireme
