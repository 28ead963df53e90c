// How a host of `trireme network` makes its own lines worse for a while: it asks the process that
// carries its packets, with a datagram to an address that no host has. For injected faults
// (inject/network_fault.h), which need no netem then.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace trireme::launch {

// Further delay and loss of all that a host sends. Zeros are none.
struct LineChange {
  std::chrono::nanoseconds delay{0};
  double loss = 0;  // 0 to 1
  bool is_none() const { return delay.count() == 0 && loss == 0; }
  bool operator==(const LineChange&) const = default;
};

// The longest delay that can be asked for.
inline constexpr std::chrono::nanoseconds kMostChangedDelay = std::chrono::minutes(1);

// Asks for the change, or with none for the end of one. Called within a host.
// Throws: Error, one line: the host has a change already, or nobody answers within a second
void change_lines(const LineChange& change);

// The last byte of the address that requests go to.
inline constexpr size_t kControlNumber = 254;
// What a packet to that address asks for; nothing when it is no request.
std::optional<LineChange> requested_change(std::span<const std::byte> packet);
// The answer to such a packet.
std::vector<std::byte> answer_to(std::span<const std::byte> packet, bool is_done);

}  // namespace trireme::launch
