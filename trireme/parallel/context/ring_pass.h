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
  // Pieces in transit lie in the group's symmetric memory, where peers read them without another
  // copy. On a host with too little shared memory for them: false.
  bool symmetric = true;
  // Counts how long this rank waits for the others; null: nobody asks.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
};

// Each rank starts with a piece of its own; after `step` hops it has that of rank (rank - step).
// Two buffers, each as large as the largest piece.
// Thread safety: one thread. The group must outlive it. Collective: every rank makes the same ring
// and the same hops.
class RingPass {
 public:
  // No group: a ring of one rank, which has nothing to pass. sizes[r]: elements of rank r's piece.
  // `tag` keeps apart the rings that move at one time.
  RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype, int tag,
           RingOptions options);
  // With a hop under way, which an exception has cut short: aborts the group.
  ~RingPass();
  RingPass(const RingPass&) = delete;
  RingPass& operator=(const RingPass&) = delete;

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  // Whose piece is here after `step` hops.
  int owner(int step) const { return (rank() - step + size()) % size(); }

  // Whose piece is in hand.
  int owner() const { return owner(num_hops_); }

  // Where the piece in hand lies: flat, sizes[owner(hops so far)] elements. To be filled before the
  // first start(), and to be changed between finish() and start() alone.
  at::Tensor piece() const;
  // Sends the piece in hand on to the next rank, which may be read meanwhile.
  // Comm: sends its bytes, receives those of the previous rank's piece; empty pieces do not travel
  void start();
  // Waits for it; piece() is then what came in.
  // Throws: CommError when a neighbour died or is late
  void finish();

 private:
  at::Tensor view(int buffer, int step) const;

  comm::Communicator* group_;
  std::vector<int64_t> sizes_;
  int tag_;
  RingOptions options_;
  int num_hops_ = 0;
  at::Tensor buffers_[2];
  std::vector<comm::WorkPtr> hop_;  // under way
};

}  // namespace trireme::parallel
