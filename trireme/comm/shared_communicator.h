// The Communicator of ranks that share memory: `thread` and `shm` are this class over different
// segments, so they give the same bits. Every operation is a few exchanges (exchange.h) of chunks
// that fit a slot; ordinary tensors are staged through it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/progress.h"
#include "trireme/comm/recorder.h"
#include "trireme/comm/segment.h"

namespace trireme::comm {

struct GroupOptions {
  std::string name = "world";                           // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  // Half a rank's staging slot: larger ones need fewer synchronisations, smaller ones stay in
  // cache.
  size_t slot_bytes = 512 << 10;
  // Where this rank's calls are recorded, in its sub-groups too; null: nowhere.
  std::shared_ptr<Recorder> recorder = nullptr;
  std::vector<int> world_ranks = {};  // the members, for the recorder; empty: 0, 1, 2, ...
};

class SharedCommunicator : public Communicator {
 public:
  // Joins group `uid`: rank 0 creates the segment, the others wait for it to appear. While waiting,
  // `loss_of`, when given, is asked why a rank will not come; empty text when it may.
  // Collective: all `size` ranks
  // Throws:     ConfigError (name in use, memory), CommError (a rank never came)
  static std::unique_ptr<SharedCommunicator> join(std::shared_ptr<SegmentFactory> segments,
                                                  const std::string& uid, int rank, int size,
                                                  const GroupOptions& options,
                                                  const Exchange::LossOf& loss_of = {});

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  const std::string& name() const override { return options_.name; }

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
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  SharedCommunicator(std::shared_ptr<SegmentFactory> segments, std::shared_ptr<Segment> segment,
                     std::string uid, int rank, int size, const GroupOptions& options);

  static std::unique_ptr<SharedCommunicator> meet_first(
      const std::shared_ptr<SegmentFactory>& segments, const std::string& uid, int rank, int size,
      const GroupOptions& options, const Exchange::LossOf& loss_of);
  template <typename Operation>
  WorkPtr issue(RecordedCall call, const Options& options, Operation operation);
  void check_root(const char* operation, int root) const;
  void check_count(const char* operation, size_t found) const;

  std::shared_ptr<SegmentFactory> segments_;
  std::string uid_;
  GroupOptions options_;
  int num_splits_ = 0;
  int recorded_group_ = -1;
  Exchange exchange_;
  Progress progress_;  // last: its thread stops before the exchange goes
};

}  // namespace trireme::comm
