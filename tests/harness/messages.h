// What a failing call says.
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::harness {

// The text of the `Expected` that `action` throws; empty: it throws none. Others go through.
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
