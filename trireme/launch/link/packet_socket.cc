#include "trireme/launch/link/packet_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/launch/link/message.h"

namespace trireme::launch::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel calls a socket writable only when three quarters of its room are free. A packet may
// fit before.
constexpr std::chrono::milliseconds kRetryDelay{10};

// Waits until the socket is ready for `events`, the deadline has passed or a signal has come.
void wait_for_socket(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd entry{fd, events, 0};
  poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
}

}  // namespace

PacketSocket::PacketSocket(Descriptor socket) : socket_(std::move(socket)) {}

std::pair<PacketSocket, PacketSocket> PacketSocket::make_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(concat("cannot make the link to a worker: socketpair: ", std::strerror(errno)));
  }
  return {PacketSocket(Descriptor(ends[0])), PacketSocket(Descriptor(ends[1]))};
}

PacketSocket PacketSocket::adopt(int fd, const std::string& variable) {
  int type = 0;
  socklen_t length = sizeof(type);
  const int result = fd < 0 ? -1 : getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
  TRIREME_CHECK(result == 0 && type == SOCK_SEQPACKET, variable, " is ", fd,
                ", which is not an open socket of the type SOCK_SEQPACKET; expected the descriptor "
                "that `trireme run` hands to a worker; unset the variable to train without it");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return PacketSocket(Descriptor(fd));
}

bool PacketSocket::send(std::string_view packet, std::chrono::milliseconds patience) const {
  const Clock::time_point deadline = Clock::now() + patience;
  while (true) {
    const ssize_t sent =
        ::send(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return true;
    const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    if (!is_full && errno != EINTR) return false;
    if (is_full && Clock::now() >= deadline) return false;
    if (is_full)
      wait_for_socket(socket_.get(), POLLOUT, std::min(deadline, Clock::now() + kRetryDelay));
  }
}

Received PacketSocket::receive(std::string& packet, std::chrono::milliseconds patience) const {
  const Clock::time_point deadline = Clock::now() + patience;
  packet.resize(kMaxPacketBytes);
  while (true) {
    // With MSG_TRUNC the result is the packet's own size.
    const ssize_t size =
        recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (size > static_cast<ssize_t>(kMaxPacketBytes)) return Received::kTooLong;
    if (size > 0) {
      packet.resize(static_cast<size_t>(size));
      return Received::kPacket;
    }
    // No message is empty, so an empty packet is the end, or as good as that.
    if (size == 0) return Received::kClosed;
    const bool is_empty = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!is_empty && errno != EINTR) return Received::kClosed;
    if (is_empty && Clock::now() >= deadline) return Received::kNothing;
    if (is_empty) wait_for_socket(socket_.get(), POLLIN, deadline);
  }
}

void PacketSocket::shut_down() const { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace trireme::launch::inline internal
