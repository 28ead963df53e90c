// The Communicator of ranks that share memory. `thread` and `shm` are this class over different
// segments, so they give the same bits. Every collective is a few exchanges (exchange.h). Symmetric
// tensors are used in place; ordinary ones are staged (collectives.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/background_work.h"
#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"
#include "trireme/comm/known_losses.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/shared/collectives.h"
#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"
#include "trireme/comm/shared/point_to_point.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

// Shared by all groups of a host.
struct Host {
  std::string job;  // prefix of the names of all segments
  std::shared_ptr<SegmentFactory> segments;
  std::shared_ptr<Heap> heap;  // null: the first group makes it in its segment
  // Whether all ranks of the first group can run at once. That group finds out; its sub-groups
  // reuse it.
  std::optional<bool> has_core_each = std::nullopt;
};

class SharedCommunicator : public RecordedCommunicator, public KnowsLosses {
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

  void abort(const std::string& reason) override { exchange_.abort(reason); }
  std::string known_loss() const override;
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
  WorkPtr start(Collective&& call, const Recorder::Entry& entry) override;
  bool lends() const override { return true; }
  void carry_out(const Collective& call);
  WorkPtr start_message(const Collective& call, const Recorder::Entry& entry);
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

}  // namespace trireme::comm
