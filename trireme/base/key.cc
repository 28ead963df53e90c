#include "trireme/base/key.h"

#include <charconv>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string to_text(long double bound) {
  const auto whole = static_cast<int64_t>(bound);
  if (static_cast<long double>(whole) == bound) return std::to_string(whole);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<double>(bound));
  return {digits, end.ptr};
}

}  // namespace

bool Range::contains(long double value) const {
  if (!zero.empty() && value == 0) return true;
  return (above_minimum ? value > minimum : value >= minimum) &&
         (below_maximum ? value < maximum : value <= maximum);
}

std::string to_text(const Range& range) {
  return concat(range.above_minimum ? "above " : "at least ", to_text(range.minimum), " and ",
                range.below_maximum ? "below " : "at most ", to_text(range.maximum),
                range.zero.empty() ? "" : concat(", or \"", range.zero, "\""));
}

}  // namespace trireme
