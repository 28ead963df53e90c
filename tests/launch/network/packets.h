// IPv4 packets by hand.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <arpa/inet.h>

#include "trireme/base/error.h"

namespace trireme::launch {

// A packet to `address` of `size` bytes, at least 20. The last byte is `mark`.
inline std::vector<std::byte> packet_to(const std::string& address, size_t size,
                                        unsigned char mark = 0) {
  std::vector<std::byte> packet(size);
  packet.at(0) = std::byte{0x45};
  if (::inet_pton(AF_INET, address.c_str(), &packet.at(16)) != 1) throw Error("no address");
  packet.back() = std::byte{mark};
  return packet;
}

}  // namespace trireme::launch
