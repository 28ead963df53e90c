// Attention over a ring of ranks, and the ring that passes its pieces.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// Passes pieces round a ring of ranks, hop by hop, while the caller works on the current piece.
struct RingOptions {
  // true: pieces travel in the background of the computation. false: the computation waits for
  // them.
  bool overlap = true;
  // Pieces to send lie in the group's symmetric memory, where peers read them without a copy. Set
  // to false on a host with too little shared memory.
  bool symmetric = true;
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
};

// Each rank starts with its own piece. After `step` hops it has that of rank (rank - step). With
// shared memory, the piece stays in the previous rank's memory.
// Memory: one buffer, as large as the largest piece, for each of room()'s last two tensors in use.
// Without shared memory, also one for each piece in hand, arriving or leaving.
// Thread safety: one thread. The group must outlive it.
// Collective: every rank makes the same ring and the same hops
class RingPass {
 public:
  // Null group: a ring of one rank, which passes nothing. sizes[r]: elements of rank r's piece.
  // `tag` separates rings that are active at the same time.
  RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype, int tag,
           RingOptions options);
  // If an exception prevented end(), aborts the group when messages are under way.
  ~RingPass();
  RingPass(const RingPass&) = delete;
  RingPass& operator=(const RingPass&) = delete;

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  // The rank whose piece is here after `step` hops.
  int owner(int step) const { return (rank() + size() - step % size()) % size(); }

  // The rank whose piece is here now.
  int owner() const { return owner(num_hops_); }

  // The current piece: flat, sizes[owner()] elements. Do not write to it, since it may be the
  // previous rank's memory. Release it soon, because that rank cannot reuse the memory until then.
  at::Tensor piece() const { return piece_; }
  // Memory for a piece of the same size that replaces the current one. Fill it before start().
  // Tensors that piece() returned before do not change. Also allowed before the first start().
  // Waits until the next rank has released the content from two calls ago.
  // Throws: as finish()
  at::Tensor room();
  // Sends the current piece to the next rank. Reading it meanwhile is allowed.
  // Comm: sends its bytes, receives those of the previous rank's piece; empty pieces are not sent
  void start();
  // Waits for the incoming piece. piece() returns it afterwards.
  // Throws: CommError when a neighbour died or is late
  void finish();
  // Releases the current piece and waits until all sent pieces have been read.
  // Throws: as finish()
  void end();

 private:
  // One of this rank's buffers, and the last send from it.
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
  bool has_room_ = false;  // piece_ is the last result of room()
  at::Tensor piece_;
  comm::LoanPtr next_;                // the incoming piece
  std::vector<comm::WorkPtr> sends_;  // that may not be done yet
};

// Attention of tokens that lie on different ranks, causal or not. Keys and values go round the ring
// while each rank computes with those it has.
// Source: Liu et al. 2023, arXiv:2310.01889, section 3; balance: Brandon et al. 2023,
//         arXiv:2311.09431, section 3

// softmax(q k^T / sqrt(H)) v per head, over the tokens of the whole sequence that `reach` allows,
// with the scores of reach.scores.
// Query head n reads kv head n / (N/K); kv heads are sent unexpanded. The bits are the same in
// every run: a query merges the pieces of ranks r, r - 1, r - 2, ... (mod p), and the gradients of
// rank r's keys are summed in the order r + 1, r + 2, ..., r, in fp32 at least. In fp32 and fp64
// the bits differ from those on one rank, because sums are cut elsewhere.
// Shapes:     q_BtD [B, t, N * H], k_BtG and v_BtG [B, t, K * H], sharded on T, t being this rank's
//             tokens in `split` -> [B, t, N * H]
// Comm:       sent, with n = 2 * B * K * H * itemsize bytes of keys and values per token: forward n
//             * (T - tokens of the next rank); backward as much, and n * (T - t) for gradients
//             (bf16 and fp16: 2 n, sent as fp32). Even split: (p-1)/p * T of each. Within a host
//             the next rank reads these bytes in place, without a copy.
// Memory:     with a soft cap or a bias, the scores of 256 queries with all their keys in fp32 at
//             least
// Collective: every rank of `group`, in forward and in backward: each rank's loss must depend on
//             its output, even if that is empty
// Throws:     ConfigError when shapes, heads, split and group do not fit together
at::Tensor ring_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG, const at::Tensor& v_BtG,
                          int64_t heads, int64_t kv_heads, const SequenceSplit& split,
                          comm::Communicator& group, const AttentionReach& reach = {},
                          RingOptions options = {});

// The same on whole sequences, without any communication.
// Shapes: q_BTD [B, T, N * H], k_BTG and v_BTG [B, T, K * H], or [B, S, K * H] if reach.keys is set
//         -> [B, T, N * H]
at::Tensor whole_attention(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                           const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads,
                           const AttentionReach& reach = {});

}  // namespace trireme::parallel
