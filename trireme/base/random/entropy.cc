#include "trireme/base/random/entropy.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/random.h>

#include "trireme/base/error.h"

namespace trireme::inline internal {

void fill_with_entropy(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(concat("no random bytes: ", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

std::string unique_name() {
  std::array<uint8_t, 16> bits;
  fill_with_entropy(bits);
  std::string name;
  for (const uint8_t byte : bits) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

}  // namespace trireme::inline internal
