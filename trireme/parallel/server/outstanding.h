// What a worker has asked the servers for and has no answer to yet, and which of it must be sent
// again when a chain changes. No sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/view.h"

namespace trireme::parallel::inline internal {

struct Outstanding {
  Frame frame;
  // Copies the answer, or takes note. Called once.
  std::function<void(const Frame& answer)> on_answer;
  uint32_t sent_in = 0;  // the view in which the chain that got it began; 0: not sent
};

class OutstandingRequests {
 public:
  void add(Outstanding request);
  // The request that `answer` belongs to, which is then forgotten; empty: none, or answered before.
  std::optional<Outstanding> take(const Frame& answer);

  // Learns since when each chain is as it is.
  void install(const View& view);

  // Calls `send` for each request that its chain has not got. `reaches`: whether head and tail of
  // the shard's chain are connected. Returns how many of them had been sent to another chain.
  int64_t send_due(const std::function<bool(uint32_t shard)>& reaches,
                   const std::function<void(const Frame& frame)>& send);

 private:
  // kind, part, shard, piece, incarnation (events) or tensor (states), step
  using Key = std::tuple<FrameKind, uint16_t, uint32_t, uint32_t, uint32_t, int64_t>;
  static Key key_of(const FrameHeader& header);

  std::map<Key, Outstanding> requests_;
  std::set<Key> due_;  // not sent, or to another chain
  std::vector<std::vector<uint32_t>> chains_;
  std::vector<uint32_t> since_;  // of each shard: the view in which its chain began
};

}  // namespace trireme::parallel::inline internal
