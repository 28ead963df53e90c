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

#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/message/message_channel.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/work_queue.h"

namespace trireme::comm::inline internal {

// Dense CPU tensors. Tags are 0 to 2^29 - 1.
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

  WorkPtr all_reduce(at::Tensor data, Options options) override;
  WorkPtr reduce(at::Tensor data, int root, Options options) override;
  WorkPtr broadcast(at::Tensor data, int root, Options options) override;
  WorkPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor input, Options options) override;
  WorkPtr reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                         Options options) override;
  WorkPtr all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                     Options options) override;
  WorkPtr gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                 Options options) override;
  WorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                  Options options) override;
  WorkPtr send(at::Tensor data, int peer, Options options) override;
  WorkPtr recv(at::Tensor data, int peer, Options options) override;
  WorkPtr barrier(Options options) override;
  void abort(const std::string& reason) override { exchange_.abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  using Scope = MessageExchange::Scope;

  // Records `call` on `tensor` and runs `operation`, here or in the background.
  template <typename Operation>
  WorkPtr issue(const Call& call, const at::Tensor& tensor, const Options& options,
                Operation operation);
  // Moves blocks[r] of every rank to rank r and reduces there. `out` gets block rank()'s result.
  void reduce_blocks(const Scope& scope, const at::Tensor& out,
                     const std::vector<at::Tensor>& blocks, ReduceOp operation);
  void gather_blocks(const Scope& scope, const std::vector<at::Tensor>& blocks);
  void reduce_small(const Scope& scope, const at::Tensor& data, ReduceOp operation);
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

}  // namespace trireme::comm::inline internal
