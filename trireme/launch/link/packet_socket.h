// One end of a link: a SOCK_SEQPACKET socket between two processes of a host. A packet arrives
// whole or not at all.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/file/descriptor.h"

namespace trireme::launch::inline internal {

enum class Received {
  kPacket,
  kTooLong,  // dropped: it had more than kMaxPacketBytes
  kNothing,  // for now
  kClosed,   // the peer has closed its end, or its process has ended
};

// One thread may receive while others send.
class PacketSocket {
 public:
  explicit PacketSocket(Descriptor socket);

  // Two connected ends, both close-on-exec.
  // Throws: Error when the host has no descriptor left
  static std::pair<PacketSocket, PacketSocket> make_pair();

  // Takes over an inherited descriptor and makes it close-on-exec, so that no command that this
  // process starts can hold the link open.
  // Throws: ConfigError naming `variable` when it is not such a socket
  static PacketSocket adopt(int fd, const std::string& variable);

  // Sends the packet. Waits up to `patience` for room in the socket, and by default not at all.
  // False: dropped, because there was no room or the peer is gone.
  bool send(std::string_view packet, std::chrono::milliseconds patience = {}) const;

  // Waits up to `patience` for a packet.
  Received receive(std::string& packet, std::chrono::milliseconds patience = {}) const;

  // From now on both ends receive kClosed, also a receive() that waits in another thread.
  void shut_down() const;

  int descriptor() const { return socket_.get(); }
  void close() { socket_.close(); }

 private:
  Descriptor socket_;
};

}  // namespace trireme::launch::inline internal
