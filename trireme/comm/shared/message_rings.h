// The rings of envelopes through which the ranks of a group send messages, one for each ordered
// pair of ranks, in memory that all ranks share; and the messages that a rank has moved out of its
// rings before it wants them. Knows where everything lies and which message is next. Never waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

// The sender fills a free envelope; the receiver gives it back.
struct alignas(64) Envelope {
  enum Taken : uint32_t { kFree, kTaken, kLent };

  std::atomic<uint32_t> is_ready;
  std::atomic<uint32_t> uses;     // counts how often it was given back
  std::atomic<uint32_t> written;  // pieces
  std::atomic<uint32_t> read;
  uint64_t number;  // orders the pair's messages
  uint64_t num_bytes;
  uint64_t place;  // in the heap, or Heap::kOrdinary: the data comes in pieces
  int32_t tag;
  int32_t dtype;
  std::atomic<uint32_t> taken;  // the receiver's mark
  // Among threads: holds the data. Whoever takes it out deletes it: the receiver, or a sender that
  // gives up before it is received. Never read among processes.
  std::atomic<at::Tensor*> memory;

  void give_back(Bell& bell_of_sender) {
    uses.fetch_add(1);  // before it can be used again
    is_ready.store(0);
    bell_of_sender.ring();
  }
};

// The content of an envelope, read once.
struct Letter {
  uint64_t num_bytes = 0;
  uint64_t place = 0;
  int32_t dtype = 0;
  int32_t tag = 0;

  Letter() = default;
  explicit Letter(const Envelope& envelope);
};

// One rank's view. Thread safety: a ring has one sender and one receiver.
class MessageRings {
 public:
  static constexpr int kEnvelopes = 8;    // per pair: messages not yet received, or on loan
  static constexpr uint32_t kPieces = 2;  // per envelope
  static constexpr size_t kPieceBytes = 32 << 10;

  static SegmentSize segment_size(int size);

  // Uses `segment`'s memory from the offsets `committed` and `reserved` on.
  MessageRings(std::shared_ptr<Segment> segment, size_t committed, size_t reserved, int rank,
               int size);

  Bell& bell_of(int rank) const { return bells_[rank]; }
  std::span<Envelope> to(int peer) const { return ring(rank_, peer); }
  std::span<Envelope> from(int peer) const { return ring(peer, rank_); }

  // The oldest message of `source` with that tag (empty: any tag) that nobody has taken; null when
  // there is none.
  Envelope* oldest(int source, std::optional<int> tag) const;
  static bool is_full(std::span<const Envelope> ring);

  // Allocates memory for the pieces of an envelope to `peer`.
  // Throws: ConfigError when the host's shared memory is full
  void commit_pieces(int peer, const Envelope& envelope);
  // Where to write piece `number` of a message to `peer`.
  std::span<std::byte> piece_to(int peer, const Envelope& envelope, size_t number) const;
  // The piece at `offset` of a message of `num_bytes`; empty when it has not arrived. Give it back
  // with next_piece_read().
  std::span<const std::byte> next_piece(int source, const Envelope& envelope, size_t offset,
                                        size_t num_bytes) const;
  static void next_piece_read(Envelope& envelope, size_t offset);

 private:
  std::span<Envelope> ring(int from, int to) const;
  size_t offset_of(int from, int to, const Envelope& envelope) const;  // of its pieces

  std::shared_ptr<Segment> segment_;
  Bell* bells_;  // one per rank
  Envelope* envelopes_;
  size_t pieces_offset_;
  int rank_;
  int size_;
};

// Messages that no recv wants yet. They are moved out of a full ring into ordinary memory of the
// receiver, so that later messages can arrive. A message takes only as much memory as has arrived
// of it, whatever its envelope claims.
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

}  // namespace trireme::comm
