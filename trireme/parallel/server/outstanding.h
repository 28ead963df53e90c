// A worker's unanswered requests, and which of them must be sent again when a chain changes. Uses
// no sockets.
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
  // Copies or notes the answer. Called once.
  std::function<void(const Frame& answer)> on_answer;
  uint32_t sent_in = 0;  // the first view with the chain that it was sent to; 0: not sent
};

class OutstandingRequests {
 public:
  void add(Outstanding request);
  // Removes and returns the request that `answer` answers; empty if there is none, or if it was
  // answered before.
  std::optional<Outstanding> take(const Frame& answer);

  // Notes which chains have changed.
  void install(const View& view);

  // Calls `send` for each request that was not sent to its present chain. Returns how many of them
  // had been sent to an earlier one.
  // reaches: whether the head and the tail of the shard's chain are connected
  int64_t send_due(const std::function<bool(uint32_t shard)>& reaches,
                   const std::function<void(const Frame& frame)>& send);

 private:
  // kind, part, shard, piece, incarnation (events) or tensor (states), step
  using Key = std::tuple<FrameKind, uint16_t, uint32_t, uint32_t, uint32_t, int64_t>;
  static Key key_of(const FrameHeader& header);

  std::map<Key, Outstanding> requests_;
  std::set<Key> due_;  // not sent, or sent to an earlier chain
  std::vector<std::vector<uint32_t>> chains_;
  std::vector<uint32_t> since_;  // for each shard, the first view with its present chain
};

}  // namespace trireme::parallel::inline internal
