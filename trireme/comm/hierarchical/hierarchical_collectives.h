// Collectives on two levels: over one group within a host, and over messages of another group
// across hosts. Sums visit the hosts in turn, which keeps rank order.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"

namespace trireme::comm {

// One rank's view. All tensors below are flat and on the CPU. A list has one tensor per rank.
class HierarchicalCollectives {
 public:
  // inner: this host's ranks in rank order. outer: all ranks; only messages with tags that are 2
  // or 3 modulo 4 use it, sized ones (sized_message.h) where the call tells their sizes. Both must
  // outlive this.
  HierarchicalCollectives(Communicator& inner, Communicator& outer, const HostMap& hosts)
      : inner_(inner), outer_(outer), hosts_(hosts) {}

  static constexpr int kDataTag = 2;
  static constexpr int kCallTag = 3;
  // What a rank may tell all others while the calls are compared, in bytes.
  static constexpr int64_t kMostTold = 512;

  // Begins every collective: waits for all ranks and compares their calls.
  // mine:    [n] bytes that all others get meanwhile, at most kMostTold, or undefined. n follows
  //          from the call.
  // Returns: [n] of every rank, in rank order; nothing when `mine` is undefined
  // Comm:    within a host 1 KiB per rank; between two hosts one message of 512 bytes each way, and
  //          beside it one with n bytes of each of the host's ranks. One round trip
  // Throws:  CommError that names both calls
  std::vector<at::Tensor> agree(const std::string& call, std::chrono::milliseconds timeout,
                                const at::Tensor& mine = {});

  // out = the reduction of what every rank has told, in the order of reduce_blocks().
  void reduce_told(const at::Tensor& out, const std::vector<at::Tensor>& told,
                   ReduceOp operation) const;

  // out = the reduction of every rank's blocks[rank], in rank order when hosts_.is_contiguous(). A
  // block's partial sum goes from host to host, and each host adds its ranks. 16-bit floats travel
  // as fp32 and are rounded once. out may not be one of the blocks.
  // Comm: within a host (l-1)/l n; across n out of each host but the last, in chunks on l streams
  void reduce_blocks(const at::Tensor& out, const std::vector<at::Tensor>& blocks,
                     ReduceOp operation);
  // Copies blocks[rank()] to the same place on every rank.
  // Comm: each block crosses once to each other host, then goes round within it
  void all_gather_blocks(const std::vector<at::Tensor>& blocks);
  // Comm: along a chain of hosts, in chunks; then a broadcast within each host
  void broadcast(const at::Tensor& data, int root);
  // Sends to[r] to rank r and receives from[r] from rank r. Undefined tensors are left out. Uses
  // inner's all_to_all within a host and messages across hosts.
  // Comm: the other ranks' bytes
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
  // told: undefined, or what all ranks tell, [world n] in the order of by_host().
  void exchange_with_leaders(const at::Tensor& rows, const at::Tensor& told = {});
  // All ranks, host by host.
  std::vector<int> by_host() const;
  void await_readers();
  std::vector<int> ranks_in_my_care() const;
  std::vector<at::Tensor> gather_contributions(const std::vector<at::Tensor>& blocks);
  // next_partial: waits for what the host before sends, chunk by chunk
  void reduce_block(const at::Tensor& out, int target, const std::vector<at::Tensor>& inputs,
                    ReduceOp operation, const std::function<at::Tensor()>& next_partial,
                    std::vector<Outgoing>& outgoing);

  Communicator& inner_;
  Communicator& outer_;
  const HostMap& hosts_;
  std::chrono::milliseconds timeout_{};
};

}  // namespace trireme::comm
