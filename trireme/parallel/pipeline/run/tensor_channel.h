// Moves lists of tensors in a pipeline, in the background: between ranks, and by edge and
// microbatch between stages.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/pipeline/run/stage_graph.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Moves lists of tensors between the ranks of a pipeline, in the background. Their number is known;
// their shapes and dtypes are not. A header of fixed size precedes each list, so missing gradients,
// empty tensors and changing shapes need no special case.

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
  std::chrono::nanoseconds wait(comm::Work& work);
  void wait_for(int peer, comm::Work& work) { group_.add_wait(peer, wait(work)); }

  comm::Communicator& group_;
  comm::Options options_;
  at::Device device_;
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;  // in the order of start_recv()
  int64_t bytes_sent_ = 0;
  std::chrono::nanoseconds waiting_{0};
};

// Moves lists of tensors between stages, by edge and microbatch. Between stages of one rank they
// are kept here; otherwise a TensorChannel sends them.

// Activations go from edge.from to edge.to, gradients back.
struct Parcel {
  StageEdge edge;
  int microbatch = 0;
  bool is_gradient = false;
  auto operator<=>(const Parcel&) const = default;

  int source() const { return is_gradient ? edge.to : edge.from; }
  int target() const { return is_gradient ? edge.from : edge.to; }
};
// The parcel that a send or recv of a schedule moves.
Parcel parcel_of(const Action& transfer);

class StageExchange {
 public:
  // All arguments must outlive it.
  // Throws: ConfigError when there are more transfers than tags
  StageExchange(comm::Communicator& group, const StageGraph& graph, const Schedule& schedule,
                std::chrono::milliseconds timeout, at::Device device);

  // `tensors`: one for each of graph.inputs_between(parcel.edge).
  void put(const Parcel& parcel, std::vector<EdgeTensor> tensors);
  // Sends what was put.
  void send(const Parcel& parcel);
  void start_recv(const Parcel& parcel);
  // Returns the tensors that were put on this rank, or waits for those that start_recv() announced.
  std::vector<EdgeTensor> take(const Parcel& parcel);

  TensorChannel& channel() { return channel_; }
  void clear() { kept_.clear(); }

 private:
  int rank_of(int stage) const { return schedule_.rank_of_stage[stage]; }
  int tag_of(const Parcel& parcel) const;

  const StageGraph& graph_;
  const Schedule& schedule_;
  int rank_;
  int tags_per_list_ = 1;
  TensorChannel channel_;
  std::map<Parcel, std::vector<EdgeTensor>> kept_;
};

}  // namespace trireme::parallel
