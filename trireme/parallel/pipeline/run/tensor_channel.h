// Tensors between the ranks of a pipeline, in the background: their number is known, their shapes
// and dtypes are not. A header of fixed size goes ahead of each list; no gradient, no rows and
// other shapes than last time need nothing special.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

struct EdgeTensor {
  at::Tensor value;  // undefined: there is none
  bool requires_grad = false;
};

// Thread safety: one thread. Lists between two ranks are received in the order in which they are
// sent.
class TensorChannel {
 public:
  // `group` must outlive it. A timeout of zero is the group's own.
  TensorChannel(comm::Communicator& group, std::chrono::milliseconds timeout, at::Device device);

  // Tags `tag` to `tag` + tensors.size() are this list's alone.
  // Comm:   kHeaderBytes a tensor, and the tensors' own bytes
  // Throws: ConfigError when a tensor has more than 8 dimensions
  void send(const std::vector<EdgeTensor>& tensors, int peer, int tag);
  // From now on the list may come; returns at once.
  void start_recv(size_t num_tensors, int peer, int tag);
  // Waits for the list that start_recv() announced.
  std::vector<EdgeTensor> finish_recv(int tag);

  // Moves on what has come, without waiting.
  void progress();
  // Waits until everything has been sent.
  void finish_sends();
  // Gives up: the group is dead afterwards.
  void abort(const std::string& reason);

  static constexpr int64_t kMaxDims = 8;
  static constexpr int64_t kHeaderWords = 4 + kMaxDims;  // present, grad, dtype, dims, sizes
  static constexpr int64_t kHeaderBytes = 8 * kHeaderWords;

  int64_t bytes_sent() const { return bytes_sent_; }
  std::chrono::nanoseconds waiting() const { return waiting_; }
  // Of bytes and waiting.
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
    bool is_posted = false;  // the tensors' recvs too
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

}  // namespace trireme::parallel
