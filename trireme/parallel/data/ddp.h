// Distributed data parallelism: every rank holds the whole module and other data; gradients are
// summed over the group while backward still runs. Works on any torch::nn::Module as it is.
//
//   DistributedDataParallel ddp(*model, group);
//   for (auto& batch : batches) {
//     ddp.begin_step(batch.count());            // terms this rank's loss sums over
//     ddp.backward(loss_sum(*model, batch));    // returns with the gradients reduced
//     optimizer.step();
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

struct DdpOptions {
  // Gradients travel in buckets of about this size. Smaller ones start earlier, larger ones cost
  // fewer synchronisations; the result's bits do not depend on it.
  int64_t bucket_bytes = 4 << 20;
  // Reduce on the group's progress thread, behind backward. false: in the thread that runs
  // backward.
  bool overlap = true;
  // Buckets live in the group's symmetric memory, where reducing them is fastest. On a host with too
  // little shared memory for the gradients: false.
  bool symmetric = true;
};

// Thread safety: one thread drives it. The module and the group must outlive it; while it lives,
// the module's gradients are views of its buckets.
class DistributedDataParallel {
 public:
  // Gives every rank the parameters and buffers of rank 0.
  // Comm:       one broadcast a parameter or buffer
  // Collective: every rank of the group, with the same module structure
  // Throws:     ConfigError when the ranks' modules differ in a name, shape or dtype
  DistributedDataParallel(torch::nn::Module& module, comm::Communicator& group,
                          DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Starts a step of `num_microbatches` calls of backward(), whose losses on this rank sum over
  // `local_count` terms in all (tokens, samples; 0 is a rank without data). Forgets the old
  // gradients. Returns the count over all ranks, by which the gradients will have been divided: the
  // step's gradient is that of the global mean, however unevenly the terms lie.
  // Comm:       8 bytes all-reduced
  // Collective: every rank, with the same num_microbatches
  // Throws:     ConfigError when the global count is 0
  int64_t begin_step(int64_t local_count, int64_t num_microbatches = 1);

  // Backward of one microbatch's summed loss (a scalar). In the step's last microbatch each bucket
  // is reduced as soon as its gradients are complete; the call returns when all are. A parameter
  // that the loss did not use has gradient zero.
  // Comm:       last microbatch 2(p-1)/p * (bytes of all parameters), earlier ones nothing
  // Collective: every rank
  void backward(const at::Tensor& loss_sum);

  // How long backward() was held up by communication since the last begin_step().
  std::chrono::nanoseconds communication_time() const;

 private:
  class Reducer;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace trireme::parallel
