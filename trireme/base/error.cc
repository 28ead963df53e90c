#include "trireme/base/error.h"

namespace trireme::internal {

void throw_failed_check(const std::string& operands, const std::string& message) {
  throw ConfigError(message + " (" + operands + ")");
}

void throw_failed_assert(const char* condition, const char* file, int line,
                         const std::string& message) {
  throw InternalError(concat("assertion `", condition, "` failed at ", file, ":", line,
                             message.empty() ? "" : ": ", message));
}

}  // namespace trireme::internal
