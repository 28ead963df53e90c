// One worker per host instead of one per rank.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/server/server_client.h"

namespace trireme::parallel {

// The ranks of a host sum their gradients, the first rank talks to the servers, and the others get
// the weights from it.
// The steps of one rank of a host. Synchronous sums are taken host by host, and in rank order
// within each host, as by the hierarchical transport.
// Comm, per step, for M bytes and p ranks of the host: reduce (p-1)/p * M and M at the first rank,
//       broadcast M; the first rank's client in addition, see ServerClient
// Collective: every rank of the host, in the same order
class HostSums {
 public:
  // client: set on the host's first rank, null on the others. Both must outlive this object.
  HostSums(comm::Communicator& host, ServerClient* client);

  // Fills in the weights before `step`.
  void pull(int64_t step, const std::vector<at::Tensor>& destinations);
  // Sums `gradients` in place over the host's ranks and pushes the sums. On return they are on
  // every copy of their shards.
  void push(int64_t step, const std::vector<at::Tensor>& gradients, double learning_rate);

 private:
  comm::Communicator& host_;
  ServerClient* client_;
};

}  // namespace trireme::parallel
