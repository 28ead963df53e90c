// The Communicator of ranks that share memory. `thread` and `shm` are this class over different
// segments, so they give the same bits. Every collective is a few exchanges (exchange.h). Symmetric
// tensors are used in place; ordinary ones are staged (collectives.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"
#include "trireme/comm/pending_work.h"
#include "trireme/comm/progress.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/shared/collectives.h"
#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"
#include "trireme/comm/shared/point_to_point.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm::inline internal {

// Shared by all groups of a host.
struct Host {
  std::string job;  // prefix of the names of all segments
  std::shared_ptr<SegmentFactory> segments;
  std::shared_ptr<Heap> heap;  // null: the first group makes it in its segment
  // Whether all ranks of the first group can run at once. That group finds out; its sub-groups
  // reuse it.
  std::optional<bool> has_core_each = std::nullopt;
};

class SharedCommunicator : public RecordedCommunicator {
 public:
  // Joins group `uid` of the host's job: rank 0 creates the segment, and the others wait for it.
  // Meanwhile `loss_of`, when given, is asked why a rank will not come; it returns "" when the rank
  // may.
  // Collective: all `size` ranks
  // Throws:     ConfigError (name in use, memory), CommError (a rank never came)
  static std::unique_ptr<SharedCommunicator> join(Host host, const std::string& uid, int rank,
                                                  int size, const GroupOptions& options,
                                                  const Exchange::LossOf& loss_of = {});

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  const std::string& name() const override { return options_.name; }
  bool reduces_in_rank_order() const override { return true; }

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
  LoanPtr borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                 Options options) override;
  WorkPtr barrier(Options options) override;
  void abort(const std::string& reason) override { exchange_.abort(reason); }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  struct Memory;

  SharedCommunicator(Host host, std::shared_ptr<Segment> segment, int rank, int size,
                     const GroupOptions& options);

  void watch_cancellation();
  static std::unique_ptr<SharedCommunicator> meet_first(Host host, const std::string& uid, int rank,
                                                        int size, const GroupOptions& options,
                                                        const Exchange::LossOf& loss_of);
  // Records `call` on `tensor`, announces it to the exchange and runs `operation`, here or in the
  // background.
  template <typename Operation>
  WorkPtr issue(const Call& call, const at::Tensor& tensor, const Options& options,
                Operation operation);
  WorkPtr transfer(const char* operation, const at::Tensor& data, int peer, const Options& options);
  // Completes `message` from `options`, and starts it.
  WorkPtr start(Message message, const Options& options);
  collectives::Shared shared() { return {exchange_, *host_.heap, options_.zero_copy}; }

  Host host_;
  GroupOptions options_;
  int num_splits_ = 0;
  Exchange exchange_;
  AbortGuard abort_;
  // Their threads stop before the rest is destroyed.
  PointToPoint point_to_point_;
  Progress progress_;
  Cancellation::Watch watch_;  // last: aborts all of the above
};

}  // namespace trireme::comm::inline internal
