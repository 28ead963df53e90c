// Messages between two ranks that share memory, side by side and independent of the collectives.
// A sender writes an envelope into the ring of its pair; the receiver takes the oldest with the tag
// it wants. Symmetric data is copied once, by the receiver, from where it lies, or lent: the
// receiver reads it there, and the envelope stays taken until it is given back. Ordinary data goes
// through the envelope's pieces, so a send of at most two pieces does not wait for its recv. Eight
// messages of a pair may wait in its ring. A recv that waits behind a full ring for another tag
// moves the oldest of them aside (asides.h); while no recv waits, a ninth send does.
// Comm: n bytes are written and read once more than the copy itself when the data is ordinary, and
// once more when a message is moved aside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/pending_work.h"
#include "trireme/comm/shared/asides.h"
#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"
#include "trireme/comm/shared/message_rings.h"

namespace trireme::comm {

// What a recv makes rather than fills: the sender's memory, or a tensor of its own.
struct Borrowed {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  at::Tensor data{};
};

struct Message {
  bool is_send = false;
  std::span<std::byte> data;  // read by a send, written by a recv; of a loan its size alone counts
  int peer = kAnySource;
  int tag = 0;
  int dtype = 0;  // c10::ScalarType, compared
  std::chrono::milliseconds timeout{};
  // Called once, on whichever thread ends it, also when start() throws; then let go.
  std::function<void(bool succeeded)> on_end{};
  at::Tensor memory{};                   // of a send: what `data` lies in
  std::shared_ptr<Borrowed> borrowed{};  // of a recv that borrows
};

// Thread safety: any thread.
class PointToPoint {
 public:
  // Its memory is `segment`'s from `committed` and from `reserved` on; `exchange` is the group's.
  PointToPoint(std::shared_ptr<Segment> segment, size_t committed, size_t reserved,
               Exchange& exchange, const Heap& heap, bool zero_copy,
               std::shared_ptr<AbortSwitch> abort);
  // Aborts what is still under way.
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Foreground: returns done work, or throws what went wrong. Background: at once.
  WorkPtr start(Message message, bool background);
  // Makes sleepers here look at the group's state.
  void wake_all();

 private:
  struct Transfer;
  struct Lease;
  using TransferPtr = std::shared_ptr<Transfer>;

  void drive(const std::function<bool()>& is_over);
  bool advance_all();
  bool advance_round();
  bool advance_send(Transfer& send);
  bool advance_recv(Transfer& recv);
  bool post(Transfer& send);
  bool is_claimed(int source, int tag) const;
  std::string obstacle(const Transfer& transfer) const;
  bool match(Transfer& recv);
  void check_letter(const Letter& letter, const Transfer& recv);
  std::unique_ptr<at::Tensor> hold(int source, Envelope& envelope);
  std::span<std::byte> data_of(int source, const Letter& letter, size_t alignment);
  bool lend(Transfer& recv);
  bool make_room();
  void move_aside(int source, Envelope& envelope);
  void look_for_losses();
  void fail_all(const std::exception_ptr& error);

  std::shared_ptr<Segment> segment_;
  Exchange& exchange_;
  const Heap& heap_;
  bool zero_copy_;  // whether this rank's messages may be read where they lie
  std::shared_ptr<AbortSwitch> abort_;
  MessageRings rings_;
  Asides asides_;

  std::mutex mutex_;
  std::list<TransferPtr> transfers_;  // in the order of their calls
  // In a round: those that wait for an envelope or a message so far; none overtakes them.
  std::vector<const Transfer*> waiting_;
  std::vector<uint64_t> next_number_;  // of the messages to each peer
  std::vector<uint32_t> has_pieces_;   // a bit an envelope to each peer: its memory is there
  int next_source_ = 0;                // where an any-source recv looks first
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::comm
