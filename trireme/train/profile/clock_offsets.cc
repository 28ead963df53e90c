#include "trireme/train/profile/clock_offsets.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "trireme/comm/objects.h"

namespace trireme::train::inline internal {
namespace {

constexpr int kRoundTrips = 8;
constexpr comm::Options kMessage{.tag = 0x70f};

// The clock of `rank` minus this one. Assumes that the answer was given halfway through the round
// trip.
int64_t ask(comm::Communicator& world, const LocalClock& clock, int rank) {
  at::Tensor message = at::zeros({1}, at::kLong);
  int64_t shortest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    const int64_t sent = clock.now_ns();
    world.send(message, rank, kMessage)->wait();
    world.recv(message, rank, kMessage)->wait();
    const int64_t received = clock.now_ns();
    if (received - sent >= shortest) continue;
    shortest = received - sent;
    offset = message.item<int64_t>() - (sent + shortest / 2);
  }
  return offset;
}

void answer(comm::Communicator& world, const LocalClock& clock) {
  at::Tensor message = at::zeros({1}, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    world.recv(message, 0, kMessage)->wait();
    message.fill_(clock.now_ns());
    world.send(message, 0, kMessage)->wait();
  }
}

}  // namespace

std::vector<int64_t> clock_offsets(comm::Communicator& world, const LocalClock& clock) {
  const std::vector<std::string> hosts = comm::all_gather_strings(world, clock.host);
  std::vector<int64_t> offsets;
  for (int rank = 0; rank < world.size(); ++rank) {
    // The first rank of a host measures for all its ranks.
    const auto first = static_cast<int>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    const bool measures = first == rank && first != 0;
    if (measures && world.rank() == rank) answer(world, clock);
    if (world.rank() != 0) continue;
    if (measures) {
      offsets.push_back(ask(world, clock, rank));
    } else {
      offsets.push_back(first == 0 ? 0 : offsets[first]);
    }
  }
  return offsets;
}

}  // namespace trireme::train::inline internal
