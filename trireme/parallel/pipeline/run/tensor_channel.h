// Moves lists of tensors between the ranks of a pipeline, in the background. Their number is known;
// their shapes and dtypes are not. A header of fixed size precedes each list, so missing gradients,
// empty tensors and changing shapes need no special case.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel::inline internal {

struct EdgeTensor {
  at::Tensor value;  // undefined: none
  bool requires_grad = false;
};

// Thread safety: one thread. Two ranks' lists are received in the order in which they are sent.
class TensorChannel {
 public:
  // `group` must outlive it, and takes tensors of the host (headers) and of `device`. A timeout of
  // zero means the group's.
  TensorChannel(comm::Communicator& group, std::chrono::milliseconds timeout, at::Device device);

  // The tags from `tag` to `tag` + tensors.size() belong to this list only.
  // Comm:   kHeaderBytes per tensor, and the tensors' own bytes
  // Throws: ConfigError when a tensor has more than 8 dimensions
  void send(const std::vector<EdgeTensor>& tensors, int peer, int tag);
  // Allows the list to arrive from now on. Returns at once.
  void start_recv(size_t num_tensors, int peer, int tag);
  // Waits for the list that start_recv() announced.
  std::vector<EdgeTensor> finish_recv(int tag);

  // Advances transfers for which data has arrived, without waiting.
  void progress();
  // Waits until everything has been sent.
  void finish_sends();
  // Aborts. The group is dead afterwards.
  void abort(const std::string& reason);

  static constexpr int64_t kMaxDims = 8;
  static constexpr int64_t kHeaderWords = 4 + kMaxDims;  // present, grad, dtype, dims, sizes
  static constexpr int64_t kHeaderBytes = 8 * kHeaderWords;

  int64_t bytes_sent() const { return bytes_sent_; }
  std::chrono::nanoseconds waiting() const { return waiting_; }
  // Resets bytes_sent() and waiting().
  void reset_counts();

 private:
  struct Outgoing {
    at::Tensor data;
    comm::WorkPtr work;
  };
  struct Incoming {
    int peer = 0;
    int tag = 0;
    at::Tensor header;  // [num_tensors, kHeaderWords] int64
    comm::WorkPtr header_work;
    bool is_posted = false;  // the tensors' recvs are posted too
    std::vector<EdgeTensor> tensors;
    std::vector<comm::WorkPtr> works;
  };

  void issue(const at::Tensor& data, int peer, int tag);
  void post(Incoming& incoming);
  void wait(comm::Work& work);

  comm::Communicator& group_;
  comm::Options options_;
  at::Device device_;
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;  // in the order of start_recv()
  int64_t bytes_sent_ = 0;
  std::chrono::nanoseconds waiting_{0};
};

}  // namespace trireme::parallel::inline internal
