// An agent's end of the link to one of its workers.
#pragma once

#include <optional>
#include <utility>

#include "trireme/launch/link/message.h"
#include "trireme/launch/link/packet_socket.h"

namespace trireme::launch::inline internal {

// How an agent uses it: make it; start the worker with child_descriptor() open across exec and its
// number in TRIREME_AGENT_FD; close_child(); poll descriptor() for input. Never waits. Not thread
// safe.
class WorkerLink {
 public:
  // Both ends are close-on-exec; the child has to clear the flag of its own, or to dup2() it.
  // Throws: Error when the host has no descriptor left
  WorkerLink();

  // The end that the worker inherits; -1 after close_child().
  int child_descriptor() const { return child_.descriptor(); }
  // Closes this process's copy of the worker's end. Until then the worker's death does not show.
  void close_child() { child_.close(); }

  // For poll(). Readable when there is a message or the worker has closed its end.
  int descriptor() const { return socket_.descriptor(); }

  // The next message; nothing when there is none, for now or because is_closed().
  // Throws: ConfigError when the worker sent something else. Later messages can still be received.
  std::optional<ToAgent> receive();
  // receive() has found that the worker has closed its end or has ended. It then returns nothing
  // for ever; do not poll any more.
  bool is_closed() const { return is_closed_; }

  // False: dropped, because the worker is gone or has not read for very long.
  bool send(const ToWorker& message) const;

 private:
  explicit WorkerLink(std::pair<PacketSocket, PacketSocket> ends);

  PacketSocket socket_;
  PacketSocket child_;
  bool is_closed_ = false;
};

}  // namespace trireme::launch::inline internal
