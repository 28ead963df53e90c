// What gtest appends to the name of a test for one of its parameters.
#pragma once

#include <algorithm>
#include <string>

namespace trireme::harness {

// A key's value, such as "lazy-adam": gtest takes no hyphens.
inline std::string parameter_name(std::string value) {
  std::ranges::replace(value, '-', '_');
  return value;
}

}  // namespace trireme::harness
