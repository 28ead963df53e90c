// A worker per host instead of one per rank: the ranks of a host sum their gradients, the first of
// them talks to the servers, and the others get the weights from it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/server/server_client.h"

namespace trireme::parallel {

// Steps of one rank of a host. Synchronous sums are host by host, in rank order within each, as the
// hierarchical transport's.
// Comm, per step, for M bytes and p ranks of the host: reduce (p-1)/p * M and M at the first rank,
//       broadcast M; the first rank's client as well, see ServerClient
// Collective: every rank of the host, in the same order
class HostSums {
 public:
  // client: of the host's first rank; null on the others. Both must outlive this.
  HostSums(comm::Communicator& host, ServerClient* client);

  // The weights before `step`.
  void pull(int64_t step, const std::vector<at::Tensor>& destinations);
  // Sums `gradients` in place, in the host, and pushes the sums. Then every copy has them.
  void push(int64_t step, const std::vector<at::Tensor>& gradients, double learning_rate);

 private:
  comm::Communicator& host_;
  ServerClient* client_;
};

}  // namespace trireme::parallel
