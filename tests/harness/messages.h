// The error message of a call that fails.
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::harness {

// Runs `action` and returns the text of the `Expected` it throws, or "" if it throws nothing. Other
// exceptions pass through.
template <typename Expected = Error, typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::harness
