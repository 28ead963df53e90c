// How collectives go through two levels: within a host over one group, across hosts over messages
// of another. Sums visit the hosts in turn, so that they keep rank order.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"

namespace trireme::comm {

// One rank's view. All tensors below are flat and on the CPU; a list has one for each rank.
class HierarchicalCollectives {
 public:
  // inner: this host's ranks in rank order; outer: all ranks, of which only messages with the tags
  // kDataTag and kCallTag are used. Both outlive this.
  HierarchicalCollectives(Communicator& inner, Communicator& outer, const HostMap& hosts)
      : inner_(inner), outer_(outer), hosts_(hosts) {}

  static constexpr int kDataTag = 2;
  static constexpr int kCallTag = 3;

  // Begins every collective: waits for all ranks and compares what they call.
  // Comm: within a host 1 KiB a rank; between two hosts one message of 512 bytes each way
  // Throws: CommError that names both calls
  void agree(const std::string& call, std::chrono::milliseconds timeout);

  // out: the reduction, in rank order when hosts_.is_contiguous(), of every rank's blocks[rank].
  // A block's partial sum goes from host to host, each adding its ranks; 16-bit floats travel as
  // fp32 and are rounded once. out may not be one of the blocks.
  // Comm: within a host (l-1)/l n; across n out of each host but the last, in chunks on l streams
  void reduce_blocks(const at::Tensor& out, const std::vector<at::Tensor>& blocks,
                     ReduceOp operation);
  // blocks[rank()] ends up in that place on every rank.
  // Comm: each block crosses once to each other host, then goes round within it
  void all_gather_blocks(const std::vector<at::Tensor>& blocks);
  // Comm: a chain of hosts, in chunks; then a broadcast within each
  void broadcast(const at::Tensor& data, int root);
  // from[r] -> rank r, to[r] <- rank r; undefined tensors are left out. Within a host through
  // inner's all_to_all, across directly. Comm: the others' bytes.
  void exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                c10::ScalarType dtype);

 private:
  struct Outgoing {
    at::Tensor data;
    WorkPtr work;
  };
  int rank() const { return outer_.rank(); }
  int host() const { return hosts_.host_of(rank()); }
  int local_size(int host) const { return static_cast<int>(hosts_.ranks_of(host).size()); }
  // The rank of `host` that handles what belongs to `rank`.
  int deputy(int host, int rank) const {
    return hosts_.ranks_of(host)[hosts_.local_rank_of(rank) % local_size(host)];
  }
  Options wire(int tag = kDataTag) const {
    return {.timeout = timeout_, .tag = tag, .background = true};
  }
  void exchange_with_leaders(const at::Tensor& rows);
  void await_readers();
  std::vector<int> ranks_in_my_care() const;
  std::vector<at::Tensor> gather_contributions(const std::vector<at::Tensor>& blocks);
  void reduce_block(const at::Tensor& out, int target, const std::vector<at::Tensor>& inputs,
                    ReduceOp operation, std::vector<Outgoing>& outgoing);

  Communicator& inner_;
  Communicator& outer_;
  const HostMap& hosts_;
  std::chrono::milliseconds timeout_{};
};

}  // namespace trireme::comm
