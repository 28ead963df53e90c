// The Communicator over a MessageChannel; gloo is one. The transport only moves bytes. Sums are
// computed here, in rank order, with 16-bit floats accumulated in fp32. Every supported (operation,
// dtype) therefore gives the same bits as `shm` and `thread`, whatever reductions the transport
// offers.
//
// Cost per rank for p ranks and n bytes, in rounds of messages (in a round, two ranks exchange at
// most one message each way):
//   every collective  first 1 round of 96 bytes (message_exchange.h); a barrier has no other
//   all_reduce        up to kSmallBytes: 1 round, (p-1) n; above: 2 rounds, 2(p-1)/p n
//   reduce_scatter    1 round, (p-1)/p n, and as much scratch memory
//   reduce            2 rounds, (p-1)/p n, n more at the root
//   broadcast         up to kSmallBytes, or 2 ranks: 1 round; above: 2 rounds, 2(p-1)/p n
//   all_gather, all_to_all, gather, scatter   1 round, bytes as in communicator.h; uneven blocks
//                     are not padded
//   send, recv        a message of 96 bytes before the data
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/background_work.h"
#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// Dense CPU tensors.
class MessageCommunicator : public RecordedCommunicator {
 public:
  static constexpr int64_t kSmallBytes = 16 << 10;

  MessageCommunicator(std::unique_ptr<MessageChannel> channel, const std::string& name,
                      std::chrono::milliseconds timeout, GroupRecorder recorder = {},
                      std::shared_ptr<Cancellation> cancellation = nullptr);

  int rank() const override { return exchange_.channel().rank(); }
  int size() const override { return exchange_.channel().size(); }
  const std::string& name() const override { return exchange_.name(); }
  bool reduces_in_rank_order() const override { return true; }
  const MessageChannel& channel() const { return exchange_.channel(); }

  void abort(const std::string& reason) override { exchange_.abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  using Scope = MessageExchange::Scope;

  WorkPtr start(Collective&& call, const Recorder::Entry& entry) override;
  void carry_out(const Collective& call);
  void all_reduce_flat(const Scope& scope, const at::Tensor& flat, ReduceOp operation);
  void reduce_flat(const Scope& scope, const at::Tensor& flat, int root, ReduceOp operation);
  void broadcast_flat(const Scope& scope, const at::Tensor& flat, int root);
  void move_blocks(const Collective& call, const FlatCollective& operands);
  WorkPtr start_send(const Collective& call, const Recorder::Entry& entry);
  WorkPtr start_recv(const Collective& call, const Recorder::Entry& entry);
  // Moves blocks[r] of every rank to rank r and reduces there. `out` gets block rank()'s result.
  void reduce_blocks(const Scope& scope, const at::Tensor& out,
                     const std::vector<at::Tensor>& blocks, ReduceOp operation);
  void gather_blocks(const Scope& scope, const std::vector<at::Tensor>& blocks);
  std::vector<at::Tensor> view_blocks(const at::Tensor& flat) const;
  // One block per rank: `mine`, and memory of the same size for each other rank.
  std::vector<at::Tensor> with_room(const at::Tensor& mine);

  MessageExchange exchange_;
  int num_splits_ = 0;
  at::Tensor scratch_;  // for with_room(); collectives run one at a time
  WorkQueue queue_;     // its threads stop before exchange_ is destroyed
  const std::shared_ptr<Cancellation> cancellation_;
  const Cancellation::Watch watch_;  // last: aborts exchange_
};

}  // namespace trireme::comm
