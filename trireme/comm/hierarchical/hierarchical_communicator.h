// A group of ranks on several hosts, made of two groups: `inner` within this host (shm) and `outer`
// between all ranks (gloo). Within a host, data goes through inner. Across hosts, it is sent once
// to each other host.
//
// Numerics: a sum is taken host by host, and within a host rank by rank. It is one running sum that
// the hosts pass on. 16-bit floats are summed in fp32 and rounded once. When the ranks of each host
// are consecutive, as launchers place them, this is rank order. The bits are then those of `shm`,
// `thread` and `gloo`, however the ranks are spread over hosts. Otherwise the placement fixes the
// order.
//
// Cost for h hosts of l ranks and n bytes of data, across hosts, per host and direction:
//   all_reduce      n partial sums (2n for 16-bit floats) and (h-1)/h n results; 2h-2 messages deep
//   reduce_scatter  n partial sums; h messages deep        all_gather  (h-1)/h n
//   broadcast       n, h-1 messages deep                   the rest    crossing bytes, directly
// Within a host it is the cost of inner's all_to_all and all_gather. Every collective first
// compares calls: one message of 512 bytes each way between hosts. An all_reduce, all_gather or
// broadcast of at most 512 bytes (of the longest block) is done with that: a second message beside
// the first has those of all ranks of the host. It takes one round trip, with the same bits. A
// message within a host is announced over outer, so that a recv may take it from any rank, unless
// it is sized (sized_message.h).
//
// The flight recorder records this group's calls under its name. The calls that it makes on inner
// and outer are not recorded: those two groups are made without a recorder.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/background_work.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/hierarchical/hierarchical_collectives.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/known_losses.h"
#include "trireme/comm/recorder/group_recorder.h"

namespace trireme::comm {

// inner: the ranks of this host, in rank order. outer: all ranks, in rank order. Both must let
// several threads send and recv, as all our transports do. On one host the result is `inner`
// itself, which then records in `recorder`.
// Collective: all ranks
// Throws:     ConfigError when the groups do not fit `hosts`
std::unique_ptr<Communicator> make_hierarchical_group(std::unique_ptr<Communicator> inner,
                                                      std::unique_ptr<Communicator> outer,
                                                      const HostMap& hosts, const std::string& name,
                                                      GroupRecorder recorder = {});

// Dense CPU tensors.
class HierarchicalCommunicator : public RecordedCommunicator, public KnowsLosses {
 public:
  HierarchicalCommunicator(std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> outer,
                           const HostMap& hosts, std::string name, GroupRecorder recorder = {});
  ~HierarchicalCommunicator() override;

  int rank() const override { return outer_->rank(); }
  int size() const override { return outer_->size(); }
  const std::string& name() const override { return name_; }
  bool reduces_in_rank_order() const override { return hosts_.is_contiguous(); }
  const Communicator& inner() const { return *inner_; }
  const Communicator& outer() const { return *outer_; }

  void abort(const std::string& reason) override;
  std::string known_loss() const override;
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 private:
  WorkPtr start(Collective&& call, const Recorder::Entry& entry) override;
  void carry_out(const Collective& call);
  // What remains when the calls have been compared, with what all ranks have told or without.
  void carry_out_told(const Collective& call, const FlatCollective& operands,
                      const std::vector<at::Tensor>& told);
  void carry_out_agreed(const Collective& call, const FlatCollective& operands);
  WorkPtr start_sized(const Collective& call, const Recorder::Entry& entry);
  WorkPtr start_send(const Collective& call, const Recorder::Entry& entry);
  WorkPtr start_recv(const Collective& call, const Recorder::Entry& entry);
  template <typename Operation>
  auto guarded(const std::string& what, Operation&& operation);
  Communicator& path_to(int peer) const;
  int rank_on_path(int peer) const;

  const std::unique_ptr<Communicator> inner_;
  const std::unique_ptr<Communicator> outer_;
  const HostMap hosts_;
  const std::string name_;
  HierarchicalCollectives collectives_;
  std::mutex mutex_;
  uint64_t sequence_ = 0;       // of collectives
  std::vector<uint64_t> sent_;  // messages to each peer
  WorkQueue queue_;             // last: its threads stop before the groups are destroyed
};

}  // namespace trireme::comm
