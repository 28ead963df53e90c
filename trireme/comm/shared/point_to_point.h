// Messages between two ranks that share memory, independent of the collectives. Each ordered pair
// of ranks has a ring of eight envelopes (message_rings.h); each rank has a bell (segment.h). A
// sender A fills a free envelope. The receiver B takes the oldest one that has the tag it wants.
//
// An envelope's states:
//
//   +--------+   A: fills it,    +---------+   B: matches it,   +---------+   B: lends   +--------+
//   |  free  | ----------------> |  ready  | -----------------> |  taken  | -----------> |  lent  |
//   +--------+   is_ready = 1    +---------+   taken = kTaken   +---------+   = kLent    +--------+
//       ^                                                            | all is copied         | last
//       |                                                            |                       | view
//       +------------------------------------------------------------+-----------------------+ dies
//                     B gives it back: ++uses, is_ready = 0, rings A's bell
//
// Who writes which field:
//   is_ready                      A 1, when all else is filled in; B 0, to give it back
//   number, num_bytes, place,     A, while it is free
//   tag, dtype
//   taken                         A kFree, while it is free; B kTaken, kLent
//   written, read                 A zero, while it is free; then A `written`, B `read`
//   uses                          B, just before is_ready = 0
//   memory (threads)              A a tensor that holds the data, while it is free; whoever takes
//                                 it out deletes it: B, or A when the send fails
//
// Data goes one of three ways.
// 1. In pieces: ordinary memory, and up to 32 KiB of any memory. The envelope has room for two
//    pieces of 32 KiB; piece n uses place n % 2. A send of up to two pieces does not wait for its
//    recv.
//
//      A: send of three pieces                     B: recv
//      fill, pieces 0 and 1, written = 2
//      is_ready = 1, ring B            --------->  take it, copy piece 0 out, read = 1
//        :                                         copy piece 1 out, read = 2
//      piece 2 into place 0            <---------  ring A
//      written = 3, ring B; send done  --------->  copy piece 2 out, read = 3
//      the envelope is free            <---------  give it back; recv done
//
//    A may write piece n while n - read < 2. B may read piece n while written - n is 1 or 2.
// 2. In place: larger symmetric memory. B copies from A's memory, and A waits.
//
//      fill, is_ready = 1, ring B      --------->  take it, copy from A's memory
//      uses has changed: send done     <---------  give it back; recv done
//
// 3. Lent: as 2, but borrow() returns a tensor over A's memory, and B gives the envelope back when
//    its last view dies, on whichever thread. At most six of a pair's eight envelopes are lent, so
//    that later messages get past them; a further borrow copies.
//
// Memory order. All of these atomics are sequentially consistent.
//   is_ready       1 publishes the fields, the first pieces and the symmetric data to B. 0 returns
//                  the fields and pieces to A: B reads them no more.
//   written, read  publish that a piece is full, and that it is empty again.
//   uses           returns symmetric data to A. It changes before is_ready. Otherwise A could reuse
//                  the envelope first, and take the old use's change for the new message's end.
//   taken          is read before is_ready when B looks for messages. Otherwise B could pair the
//                  old use's is_ready with the new use's kFree, when a loan ends in between.
//   Release and acquire would do for these. Sequential consistency serves the bell: a rank changes
//   one of them and then looks for sleepers; a sleeper counts itself and then looks at them. With
//   less, each could miss the other's change, and the sleeper would sleep on for up to 50 ms.
//
// Order. Messages of a pair with one tag are received in the order of their sends. Sends to one
// peer take envelopes in the order of their calls. Recvs that could take the same message take it
// in the order of their calls. When a recv waits behind a full ring, the oldest message there that
// nobody has taken moves aside (Asides). While no recv waits, eight messages fill the ring and
// the ninth send waits.
//
// Threads of a rank. Each foreground call, and one background thread, moves all transfers of the
// rank under one lock. Each sleeps on the rank's bell while nothing moves. Giving a loan back takes
// no lock.
//
// Failure. A rank looks when its sleep ends and nothing has moved, at least every 50 ms. It aborts
// the group when the peer of a transfer has died or left, or when a transfer has passed its
// deadline. In an aborted group all transfers fail with the first reason. A send in pieces may be
// done by then: its message can be received although A has left. After a failure B may still read
// A's data, which stays mapped or, among threads, held; its values may change.
//
// Comm: n bytes. In pieces they are written and read once more, and once more when moved aside.
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

#include "trireme/comm/background_work.h"
#include "trireme/comm/loan.h"
#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"
#include "trireme/comm/shared/message_rings.h"

namespace trireme::comm {

struct Message {
  bool is_send = false;
  std::span<std::byte> data;  // read by a send, written by a recv; of a loan only the size
  int peer = kAnySource;
  int tag = 0;
  int dtype = 0;  // c10::ScalarType; both ends must give the same
  std::chrono::milliseconds timeout{};
  // Called once, on the thread that ends the message, also when start() throws. Then destroyed, and
  // with it the tensors it holds.
  std::function<void(bool succeeded)> on_end{};
  at::Tensor memory{};                   // send: the tensor that owns `data`
  std::shared_ptr<Borrowed> borrowed{};  // recv that borrows
};

// Thread safety: any thread.
class PointToPoint {
 public:
  // Uses `segment`'s memory from offsets `committed` and `reserved` on, as much of each as
  // MessageRings::segment_size() says. `exchange` is the same group's; it and `heap` outlive this.
  PointToPoint(std::shared_ptr<Segment> segment, size_t committed, size_t reserved,
               Exchange& exchange, const Heap& heap, bool zero_copy,
               std::shared_ptr<AbortSwitch> abort);
  // Aborts the group if a message is under way.
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Foreground: returns when the message is done, or throws why it failed. Background: returns at
  // once.
  // Throws: CommError when the group was aborted
  WorkPtr start(Message message, bool background);
  // Wakes every rank that sleeps in a message, so that it looks at the group's state.
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
  bool zero_copy_;  // peers may read this rank's messages where they lie
  std::shared_ptr<AbortSwitch> abort_;
  MessageRings rings_;
  Asides asides_;

  std::mutex mutex_;                  // guards asides_ and all that follows
  std::list<TransferPtr> transfers_;  // in the order of their calls
  // Filled in each round: transfers that still wait for an envelope or a message. Later ones must
  // not overtake them.
  std::vector<const Transfer*> waiting_;
  std::vector<uint64_t> next_number_;  // by peer: the number of the next message
  std::vector<uint32_t> has_pieces_;   // by peer: bit e is set when envelope e's pieces have memory
  int next_source_ = 0;                // where an any-source recv looks first
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::comm
