// The end of a host's only cable: what the host sends arrives here as packets, and packets written
// here arrive at the host.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trireme/base/file/file.h"

namespace trireme::launch {

// The interface that hosts of `trireme network` have.
inline constexpr const char* kNetworkInterface = "trireme0";

// Not thread safe. The device ends with the object or the process, even after `kill -9`.
class TunDevice {
 public:
  // Makes the device in the network namespace of the calling thread, gives it `address` in a
  // network of 256 addresses, and brings it up.
  // Throws: ConfigError, one line, without the right to it or without /dev/net/tun
  TunDevice(const std::string& name, const std::string& address, int mtu);

  // Readable, for poll(), when the host has sent something.
  int descriptor() const { return device_.get(); }
  // The next packet that the host has sent, in `buffer`; empty when there is none. Never blocks.
  std::span<const std::byte> read(std::span<std::byte> buffer) const;
  // Hands a packet to the host. Returns whether the host took it.
  bool write(std::span<const std::byte> packet) const;

 private:
  Descriptor device_;
};

// Brings the loopback of the calling thread's network namespace up.
// Throws: ConfigError, one line
void raise_loopback();

}  // namespace trireme::launch
