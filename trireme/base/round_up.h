// Rounding up to whole units.
#pragma once

#include <cstddef>

namespace trireme::inline internal {

// The smallest multiple of `unit` that is at least `value`.
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace trireme::inline internal
