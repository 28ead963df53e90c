// Packets on their way between the hosts of a network: which line each takes and when it is there.
// Has no clock and opens nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/comm/net/paced_link.h"
#include "trireme/launch/network/line_control.h"
#include "trireme/launch/network/network_file.h"

namespace trireme::launch {

class PacketPaths {
 public:
  // most_bytes: no more are kept under way, whatever the lines' rates and delays. A packet beyond
  // counts as dropped.
  explicit PacketPaths(const NetworkFile& network, size_t most_bytes = size_t{1} << 30);

  // A packet that `host` has sent. Anything but IPv4 to another host is dropped and not counted; so
  // is what goes to a host without a line, as if there were no route. A request for a change of the
  // host's lines (line_control.h) is carried out and answered at once.
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

  void change_lines_of(size_t host, int64_t now_ns, std::span<const std::byte> packet);
  void put(int64_t arrival_ns, size_t host, std::vector<std::byte> packet);

  const size_t most_bytes_;
  std::map<std::pair<size_t, size_t>, Line> lines_;  // from, to
  std::map<size_t, LineChange> changes_;             // of hosts that have one
  // By the time of arrival and then by number, so that equal times keep the order of sending.
  std::map<std::pair<int64_t, uint64_t>, Arrival> under_way_;
  uint64_t num_taken_ = 0;
  size_t bytes_under_way_ = 0;
};

}  // namespace trireme::launch
