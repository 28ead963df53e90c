// The Communicator of ranks that share memory: `thread` and `shm` are this class over different
// segments, so they give the same bits. Every collective is a few exchanges (exchange.h); symmetric
// tensors are used where they lie, ordinary ones are staged (collectives.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/heap.h"
#include "trireme/comm/pending_work.h"
#include "trireme/comm/point_to_point.h"
#include "trireme/comm/progress.h"
#include "trireme/comm/recorder.h"
#include "trireme/comm/segment.h"

namespace trireme::comm {

struct GroupOptions {
  std::string name = "world";                           // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  // Through which ordinary tensors go, two a rank: larger ones need fewer synchronisations, smaller
  // ones stay in cache.
  size_t slot_bytes = 512 << 10;
  // How much symmetric memory a rank may allocate; zero means as much as the host has. Only what is
  // allocated takes memory.
  size_t heap_bytes = 0;
  // false: stages every tensor, symmetric or not. The results do not change.
  bool zero_copy = true;
  // Where this rank's calls are recorded, in its sub-groups too; null: nowhere.
  std::shared_ptr<Recorder> recorder = nullptr;
  std::vector<int> world_ranks = {};  // the members, for the recorder; empty: 0, 1, 2, ...
};

// What the groups of one host have in common.
struct Host {
  std::string job;  // begins the names of all segments
  std::shared_ptr<SegmentFactory> segments;
  std::shared_ptr<Heap> heap;  // null: the first group makes it in its segment
  int num_ranks = 0;           // of the first group; they compete for the cores
};

class SharedCommunicator : public Communicator {
 public:
  // Joins group `uid` of the host's job: rank 0 creates the segment, the others wait for it to appear. While waiting,
  // `loss_of`, when given, is asked why a rank will not come; empty text when it may.
  // Collective: all `size` ranks
  // Throws:     ConfigError (name in use, memory), CommError (a rank never came)
  static std::unique_ptr<SharedCommunicator> join(Host host, const std::string& uid, int rank,
                                                  int size, const GroupOptions& options,
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
  struct Memory;

  SharedCommunicator(Host host, std::shared_ptr<Segment> segment, int rank, int size,
                     const GroupOptions& options);

  static std::unique_ptr<SharedCommunicator> meet_first(Host host, const std::string& uid, int rank,
                                                        int size, const GroupOptions& options,
                                                        const Exchange::LossOf& loss_of);
  // Records `call` on `tensor`, announces it to the exchange and runs `operation`, here or behind.
  template <typename Operation>
  WorkPtr issue(const Call& call, const at::Tensor& tensor, const Options& options,
                Operation operation);
  WorkPtr transfer(const char* operation, const at::Tensor& data, int peer, const Options& options);
  collectives::Shared shared() { return {exchange_, zero_copy_heap_}; }

  Host host_;
  std::shared_ptr<Heap> no_heap_;
  GroupOptions options_;
  const Heap& zero_copy_heap_;  // the host's, or none
  int num_splits_ = 0;
  int recorded_group_ = -1;
  Exchange exchange_;
  AbortGuard abort_;
  // Last: their threads stop before the rest goes.
  PointToPoint point_to_point_;
  Progress progress_;
};

}  // namespace trireme::comm
