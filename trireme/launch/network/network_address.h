// The addresses of hosts in a made-up network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme::launch {

// The first three bytes. Every network has the same: their namespaces do not see each other.
inline constexpr std::array<uint8_t, 3> kNetworkBytes = {10, 231, 80};

// "10.231.80.1" of host 0.
inline std::string network_address(size_t host) {
  return concat(+kNetworkBytes[0], ".", +kNetworkBytes[1], ".", +kNetworkBytes[2], ".", host + 1);
}

}  // namespace trireme::launch
