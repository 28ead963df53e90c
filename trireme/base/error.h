// The five exception types of the project and the checks that throw them. The library never prints,
// exits or aborts. Every failure is one of these types, and its message is one line.
#pragma once

#include <stdexcept>
#include <string>

#include "trireme/base/locale/text.h"

namespace trireme {

// Base of every exception thrown by Trireme.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user can fix it: a config value, an argument, a data file. The message gives the value found,
// the value expected and the fix.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A peer is lost, is late or called something else. The communicator is dead afterwards.
class CommError : public Error {
 public:
  using Error::Error;
};

// A checkpoint cannot be used. The message gives the path and what differed.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

// A bug in Trireme.
class InternalError : public Error {
 public:
  using Error::Error;
};

// Joins its arguments as `operator<<` prints them in the classic locale.
template <typename... Args>
std::string concat(const Args&... args) {
  TextWriter out;
  static_cast<void>((out << ... << args));
  return out.str();
}

namespace internal {
[[noreturn]] void throw_failed_check(const std::string& operands, const std::string& message);
[[noreturn]] void throw_failed_assert(const char* condition, const char* file, int line,
                                      const std::string& message);
}  // namespace internal
}  // namespace trireme

// Throws ConfigError(message...) unless `condition` holds. The message gives the value found, the
// value expected and the fix.
#define TRIREME_CHECK(condition, ...)                               \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      throw ::trireme::ConfigError(::trireme::concat(__VA_ARGS__)); \
  } while (false)

// Throws InternalError unless `condition` holds. The message names the condition and the source
// line.
#define TRIREME_ASSERT(condition, ...)                                          \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      ::trireme::internal::throw_failed_assert(#condition, __FILE__, __LINE__,  \
                                               ::trireme::concat(__VA_ARGS__)); \
  } while (false)

// Like TRIREME_CHECK for `a op b`; appends both operands: "... (3 vs 4)".
#define TRIREME_CHECK_OP(a, op, b, ...)                                                        \
  do {                                                                                         \
    const auto& trireme_a = (a);                                                               \
    const auto& trireme_b = (b);                                                               \
    if (!(trireme_a op trireme_b)) [[unlikely]]                                                \
      ::trireme::internal::throw_failed_check(::trireme::concat(trireme_a, " vs ", trireme_b), \
                                              ::trireme::concat(__VA_ARGS__));                 \
  } while (false)
