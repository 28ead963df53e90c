// Pieces that go round a ring of ranks, one hop a time, while the caller works on the one in hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

struct RingOptions {
  // Pieces travel behind the computation. false: the computation waits for them.
  bool overlap = true;
  // Pieces to be sent lie in the group's symmetric memory, where peers read them without a copy. On
  // a host with too little shared memory for them: false.
  bool symmetric = true;
  // Counts how long this rank waits for the others; null: nobody asks.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
};

// Each rank starts with a piece of its own; after `step` hops it has that of rank (rank - step),
// which lies where the previous rank has it when they share memory.
// Memory: as many buffers, each as large as the largest piece, as of room()'s last two tensors are
// used; where ranks share no memory one more a piece in hand, on its way in or out.
// Thread safety: one thread. The group must outlive it. Collective: every rank makes the same ring
// and the same hops.
class RingPass {
 public:
  // No group: a ring of one rank, which has nothing to pass. sizes[r]: elements of rank r's piece.
  // `tag` keeps apart the rings that move at one time.
  RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype, int tag,
           RingOptions options);
  // Without end(), which an exception has cut short: aborts the group when messages are under way.
  ~RingPass();
  RingPass(const RingPass&) = delete;
  RingPass& operator=(const RingPass&) = delete;

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  // Whose piece is here after `step` hops.
  int owner(int step) const { return (rank() + size() - step % size()) % size(); }

  // Whose piece is in hand.
  int owner() const { return owner(num_hops_); }

  // The piece in hand: flat, sizes[owner()] elements, to be read only: it may be the previous
  // rank's memory. Let go of it soon: until then that rank cannot use it again.
  at::Tensor piece() const { return piece_; }
  // Memory for another piece of the same size that takes its place, to be filled before start();
  // what piece() gave before stays as it is. Called before the first start() too. Waits until the
  // next rank has let go of what lay there, two calls ago.
  // Throws: as finish()
  at::Tensor room();
  // Sends the piece in hand on to the next rank, which may be read meanwhile.
  // Comm: sends its bytes, receives those of the previous rank's piece; empty pieces do not travel
  void start();
  // Waits for what comes in, which is piece() then.
  // Throws: CommError when a neighbour died or is late
  void finish();
  // Lets go of the piece in hand and waits until all that was sent has been read.
  // Throws: as finish()
  void end();

 private:
  // Memory of this rank's, and what was last sent of it.
  struct Room {
    at::Tensor buffer;
    comm::WorkPtr sent;
  };
  void wait(comm::Work& work);

  comm::Communicator* group_;
  std::vector<int64_t> sizes_;
  at::TensorOptions dtype_;
  int tag_;
  RingOptions options_;
  int num_hops_ = 0;
  int num_rooms_ = 0;  // calls of room()
  Room rooms_[2];
  bool has_room_ = false;  // piece_ is the last room()'s
  at::Tensor piece_;
  comm::LoanPtr next_;                // what comes in
  std::vector<comm::WorkPtr> sends_;  // that may not be done
};

}  // namespace trireme::parallel
