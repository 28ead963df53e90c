// Messages that no recv wants yet. They are moved out of a full ring into ordinary memory of the
// receiver, so that later messages can arrive. A message takes only as much memory as has arrived
// of it, whatever its envelope claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/shared/message_rings.h"

namespace trireme::comm::inline internal {

struct Aside {
  explicit Aside(const Letter& read) : letter(read) {}

  Letter letter;
  std::vector<std::byte> data;  // what has arrived
  bool is_whole() const { return data.size() == letter.num_bytes; }
};
using AsidePtr = std::shared_ptr<Aside>;

// One rank's messages. Thread safety: one thread at a time.
class Asides {
 public:
  explicit Asides(const MessageRings& rings) : rings_(rings) {}

  // Keeps a whole message. Messages in the ring are younger than those kept from the same source.
  void keep(int source, const Letter& letter, std::span<const std::byte> data);
  // Keeps the message in `envelope`, which arrives in pieces. Gives it back with the last piece.
  void keep_arriving(int source, const Letter& letter, Envelope& envelope);
  // Whether a message of the source is still arriving. Only one at a time may.
  bool is_arriving(int source) const { return arriving_.contains(source); }
  // Takes the pieces that have arrived. True when there were any.
  bool advance();
  // Hands over the oldest message of the source with that tag, whole or arriving; null when there
  // is none.
  AsidePtr take(int source, int tag);
  void clear();

 private:
  struct Arriving {
    AsidePtr message;
    Envelope* envelope;
  };

  bool advance(int source, Arriving& arriving);

  const MessageRings& rings_;
  std::map<std::pair<int, int>, std::deque<AsidePtr>> kept_;  // by source and tag
  std::map<int, Arriving> arriving_;                          // by source
};

}  // namespace trireme::comm::inline internal
