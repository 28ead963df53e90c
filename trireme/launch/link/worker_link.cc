#include "trireme/launch/link/worker_link.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
namespace {

constexpr const char* kWorkerSource = "the link to the worker";

}  // namespace

WorkerLink::WorkerLink() : WorkerLink(PacketSocket::make_pair()) {}

WorkerLink::WorkerLink(std::pair<PacketSocket, PacketSocket> ends)
    : socket_(std::move(ends.first)), child_(std::move(ends.second)) {}

std::optional<ToAgent> WorkerLink::receive() {
  if (is_closed_) return std::nullopt;
  std::string packet;
  switch (socket_.receive(packet)) {
    case Received::kPacket: return parse_to_agent(packet, kWorkerSource);
    case Received::kTooLong:
      throw ConfigError(
          concat(kWorkerSource, ": a packet has more than ", kMaxPacketBytes, " bytes"));
    case Received::kClosed: is_closed_ = true; break;
    case Received::kNothing: break;
  }
  return std::nullopt;
}

bool WorkerLink::send(const ToWorker& message) const { return socket_.send(to_packet(message)); }

}  // namespace trireme::launch::inline internal
