// Packets on their way between the hosts of a network: which line each takes and when it is there.
// Has no clock and opens nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/net/paced_link.h"
#include "trireme/launch/network/network_file.h"

namespace trireme::launch {

// "10.231.80.1" of host 0. Host n of every network has the same address: their namespaces do not
// see each other.
std::string network_address(size_t host);

class PacketPaths {
 public:
  // most_bytes: no more are kept under way, whatever the lines' rates and delays. A packet beyond
  // counts as dropped.
  explicit PacketPaths(const NetworkFile& network, size_t most_bytes = size_t{1} << 30);

  // A packet that `host` has sent. Anything but IPv4 to another host is dropped and not counted; so
  // is what goes to a host without a line, as if there were no route.
  void take(size_t host, int64_t now_ns, std::span<const std::byte> packet);

  struct Arrival {
    size_t host = 0;
    std::vector<std::byte> packet;
  };
  // The next packet that is there by now. Packets of one line keep their order.
  std::optional<Arrival> next(int64_t now_ns);
  // When the next one is there; nothing when none is under way.
  std::optional<int64_t> next_time() const;

  // The directions of every line, in the order of the hosts.
  struct Direction {
    size_t from = 0, to = 0;
    comm::LinkCounts counts{};
  };
  std::vector<Direction> directions() const;

 private:
  struct Line {
    comm::PacedLink link;
    uint64_t beyond = 0;  // dropped for most_bytes_
  };

  const size_t num_hosts_;
  const size_t most_bytes_;
  std::map<std::pair<size_t, size_t>, Line> lines_;  // from, to
  // By the time of arrival and then by number, so that equal times keep the order of sending.
  std::map<std::pair<int64_t, uint64_t>, Arrival> under_way_;
  uint64_t num_taken_ = 0;
  size_t bytes_under_way_ = 0;
};

}  // namespace trireme::launch
