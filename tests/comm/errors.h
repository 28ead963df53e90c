// What a failing call says.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace trireme::comm {

// The text of the `Expected` that `call` throws; a failed test when it throws none.
template <typename Expected, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace trireme::comm

// Expects that `statement` throws `type` with `part` in its text.
#define EXPECT_ERROR(type, statement, part)                                     \
  do {                                                                          \
    const std::string error_text =                                              \
        ::trireme::comm::error_of<type>([&] { static_cast<void>(statement); }); \
    EXPECT_PRED2(::trireme::comm::contains, error_text, part);                  \
  } while (false)
