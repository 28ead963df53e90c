// Data parallelism. Ranks work on different data, gradients are summed over the group while
// backward still runs, and states that would be equal on all ranks can be sharded (ZeRO). The ZeRO
// stage changes memory and traffic, never a bit. Works on any torch::nn::Module; ZeRO-3 requires
// that its blocks are run through run().
//
//   DistributedDataParallel ddp(*model, group, {.zero = 1});
//   Optimizer optimizer(ddp.shards());
//   for (auto& batch : batches) {
//     ddp.begin_step(batch.count());            // terms this rank's loss sums over
//     ddp.backward(loss_sum(*model, batch));    // returns with the gradients reduced
//     optimizer.step();
//     ddp.end_step();                           // brings the new weights to all ranks
//   }
// Source: Li et al. 2020, arXiv:2006.15704 (DDP); Rajbhandari et al. 2020, arXiv:1910.02054 (ZeRO)
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/ddp_options.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

// Bytes this rank holds for the model, measured on its tensors.
struct DataParallelMemory {
  int64_t parameters = 0;       // kept from step to step
  int64_t gradients = 0;        // kept from step to step
  int64_t accumulating = 0;     // gradients until a step's last microbatch; 0: no more than these
  int64_t peak_gathered = 0;    // ZeRO-3: gathered parameters, the most at one time
  int64_t peak_in_transit = 0;  // ZeRO-2 and 3: gradients on their way, the most at one time

  DataParallelMemory& operator+=(const DataParallelMemory& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    accumulating += other.accumulating;
    peak_gathered += other.peak_gathered;
    peak_in_transit += other.peak_in_transit;
    return *this;
  }
};

// Thread safety: one thread drives it. The module and the groups must outlive it. While it exists,
// the module's gradients are views of its buckets, and with ZeRO its parameters too. With ZeRO, or
// if gradients and parameters differ in dtype, the module's own .grad() is undefined: norm,
// clipping and step work on shards().
class DistributedDataParallel {
 public:
  // Copies rank 0's parameters and buffers to every rank, or with DdpOptions::initialise each
  // rank's parts to those that need them.
  // Comm:       one broadcast per parameter or buffer; without memory, instead, with ZeRO-1 and 2
  //             an all-gather per bucket, and with replicas a broadcast of this rank's part of it
  // Collective: every rank of the group, with the same module structure
  // Throws:     ConfigError when the ranks' modules differ in a name, shape or dtype, when options
  //             are out of range or exclude each other, when two units have a parameter in common,
  //             or when another live instance has one of the parameters
  DistributedDataParallel(torch::nn::Module& module, comm::Communicator& group,
                          DdpOptions options = {});
  DistributedDataParallel(torch::nn::Module& module, DataGroups groups, DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // This rank's part of every parameter, in the module's order, for the optimizer and for
  // checkpoints. The tensors are the same in every step. With zero = 0 the weights are the module's
  // parameters. The .grad() of the weights is the gradient if it has the same dtype, so torch's
  // optimizers work on them.
  const std::vector<Shard>& shards() const;

  // Starts a step of `num_microbatches` calls of backward(). On this rank their losses sum over
  // `local_count` terms in all (tokens, samples; 0: a rank without data). Discards the old
  // gradients. Returns the count over all ranks. The gradients will be divided by it, so the step's
  // gradient is that of the global mean, however unevenly the terms are distributed.
  // Comm:       8 bytes all-reduced, over each of the groups
  // Collective: every rank, with the same num_microbatches
  // Throws:     ConfigError when the global count is 0
  int64_t begin_step(int64_t local_count, int64_t num_microbatches = 1);

  // The run() calls that follow belong to this microbatch, numbered as in run_backward(). Needed
  // with ZeRO-3 only where several forwards come before a backward, as in a pipeline.
  void begin_forward(int64_t microbatch);

  // Runs unit number `unit` of the options. With ZeRO-3 its parameters are gathered for forward(x)
  // and for its backward; otherwise this is just forward(x).
  // Comm:       ZeRO-3: (p-1)/p * n bytes of the unit's parameters in forward, the same in backward
  // Collective: every rank runs the same units in the same order
  at::Tensor run(size_t unit, const at::Tensor& x, const UnitForward& forward);

  // Backward of one microbatch's summed loss (a scalar), times `scale` (loss scaling, which
  // enlarges the gradients). In the step's last microbatch (rank_first: in each) a bucket is
  // reduced as soon as its gradients are complete; the last call returns when all are reduced. A
  // parameter that the loss did not use has gradient zero.
  // Comm:       last microbatch (rank_first: each), n bytes of all gradients: zero = 0
  //             2(p-1)/p * n, else (p-1)/p * n; with r replicas also 2(r-1)/r * n/p; with a hook,
  //             as the hook says
  // Collective: every rank; with ZeRO-3 each rank's loss depends on the outputs of the same units
  // Throws:     ConfigError when a parameter gets two gradients, or one after its unit's backward
  void backward(const at::Tensor& loss_sum, double scale = 1);

  // Like backward(), but `autograd` runs the backward and seeds it with scale / global count. For a
  // pipeline, whose stages have no loss. microbatch: as in begin_forward(), if that was called.
  static constexpr int64_t kAnyMicrobatch = -1;
  void run_backward(const std::function<void()>& autograd, int64_t microbatch = kAnyMicrobatch);
  // A backward in two parts; parts of other microbatches may come in between. `autograd` computes
  // the gradients of activations and of parameters whose layers do not defer theirs. Later
  // `weights` computes the deferred ones. The two parts count as one microbatch. Both kinds come in
  // the order of the microbatches.
  // Comm: as backward(), in run_weight_backward()
  void run_input_backward(int64_t microbatch, const std::function<void()>& autograd);
  void run_weight_backward(int64_t microbatch, const std::function<void()>& weights);

  // Call after the optimizer has changed the shards. Every rank then has the new weights (ZeRO-3
  // gathers them when they are used). Frozen parameters stay where they are.
  // Comm:       ZeRO-1 and 2: (p-1)/p * n bytes of the trained parameters
  // Collective: every rank
  void end_step();
  // The same with the frozen parameters, whose shards may have been filled from elsewhere.
  // Comm:       ZeRO-1 and 2: (p-1)/p * n bytes of all parameters
  // Collective: every rank
  void spread_weights();

  // Makes the module's parameters whole and readable until release_parameters() or the next
  // begin_step(), for export and comparison. Without ZeRO-3 they always are.
  // Comm:       ZeRO-3: (p-1)/p * n bytes of all parameters
  // Collective: every rank
  void gather_parameters();
  void release_parameters();

  // How long communication has delayed the step since the last begin_step().
  std::chrono::nanoseconds communication_time() const;
  // Bytes that this rank's gradients have put on the wire since the last begin_step(), by the
  // formulas of comm/communicator.h or as counted by the hook.
  int64_t gradient_bytes() const;
  // With measure_squares: the squared norm of this rank's contribution to the gradient (divided by
  // the global count, times `scale`) in each microbatch since the last begin_step(), summed over
  // these microbatches. The gradient noise scale is measured from it.
  double microbatch_squares() const;
  // Of a step of so many microbatches.
  DataParallelMemory memory(int64_t num_microbatches = 1) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace trireme::parallel
