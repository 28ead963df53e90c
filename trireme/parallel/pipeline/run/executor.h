// Runs a pipeline schedule: computes this rank's stages, and moves tensors between ranks in the
// background. One executor serves every schedule. The schedule decides when things run; the results
// have the same bits.
//
//   PipelineExecutor pipeline(group, stages, make_schedule("1f1b", {...}), {.fed = {"tokens"}});
//   PipelineResult result = pipeline.run(feed);      // forward and backward of every microbatch
//   result.outputs["loss"];                          // on the rank of the last stage
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/run/stage_graph.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Postponed weight gradients. While a zero-bubble schedule runs the input part of a backward,
// layers that know this class leave their weights' gradients here.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2

using GradientFunction = std::function<at::Tensor()>;

// A layer's backward calls
//
//   if (!deferred.defer(weight, gradient)) grad_weight = gradient();
//
// and gives autograd an undefined gradient if it deferred. Within a stage, either every use of a
// weight defers or none does; then its gradients are added in the same order as without deferring.
// The tensors that `gradient` captures stay in memory until it has run.
// Thread safety: the thread that runs the pipeline, and autograd's threads while they run for it
class DeferredWork {
 public:
  using Key = std::pair<int, int64_t>;  // stage, microbatch

  // While an input part runs, keeps `gradient` for later and returns true. Otherwise returns false.
  bool defer(const at::Tensor& leaf, GradientFunction gradient);

  // Gradients deferred between begin() and end() belong to `key`.
  void begin(const Key& key);
  void end() { is_recording_ = false; }
  // Computes the gradients that `key` deferred, in the order of deferring. Each leaf's gradients
  // are summed first and accumulated once, as in one backward.
  void run(const Key& key);
  bool empty() const { return items_.empty(); }
  void clear();

 private:
  struct Item {
    at::Tensor leaf;
    GradientFunction gradient;
  };
  bool is_recording_ = false;
  Key current_;
  std::map<Key, std::vector<Item>> items_;
};

// Adds `gradient` to leaf.grad() and calls the leaf's hooks, as autograd does.
void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient);

// Wraps `work`, a backward of a stage and microbatch or a part of it: data parallelism begins and
// ends the microbatch's gradients here. Must call `work` once.
using AroundBackward =
    std::function<void(int stage, int64_t microbatch, const std::function<void()>& work)>;
// Returns the tensor of an edge that comes from outside, for the stages of this rank that read it.
using Feed = std::function<at::Tensor(const std::string& edge, int64_t microbatch)>;

struct PipelineOptions {
  std::vector<std::string> fed = {};  // edges that come from outside
  // The edge that backward starts from: a scalar that no stage reads. Empty: there is none; call
  // only evaluate().
  std::string loss = "loss";
  // Around autograd's run of a backward or of its input part, and around a weight part.
  AroundBackward around_backward = {};
  AroundBackward around_backward_weight = {};
  // Collects the deferred weight gradients of layers when the backward pass is split. Null: they
  // compute them in the input part. Outlives the executor.
  DeferredWork* deferred = nullptr;
  std::chrono::milliseconds timeout{0};  // of each transfer; zero means the group's own
  // Device of received tensors. The group also accepts host tensors (comm/device_group.h).
  at::Device device = at::kCPU;
};

struct PipelineResult {
  // The outputs of this rank's stages that no stage reads: one tensor per microbatch.
  std::map<std::string, std::vector<at::Tensor>> outputs;
  PipelineProfile profile;
};

// Thread safety: one thread drives it. The group outlives it and serves nobody else while it runs.
// After an exception from run() or evaluate() the group is dead.
class PipelineExecutor {
 public:
  // `stages`: all stages of the model, the same on every rank. Transfers in `schedule` are replaced
  // by those that the stages' edges need.
  // Comm:       a description of the pipeline, from every rank to all
  // Collective: every rank of the group
  // Throws:     ConfigError when the schedule is wrong or is for another number of ranks or stages,
  //             when an edge is wrong, when the loss is missing or read, or when ranks differ
  PipelineExecutor(comm::Communicator& group, std::vector<PipelineStage> stages, Schedule schedule,
                   PipelineOptions options = {});
  ~PipelineExecutor();
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  // Runs forward and backward of every microbatch. Adds to each parameter's .grad() `seed` times
  // the gradient of the sum of all microbatches' losses. The gradient of an edge that several
  // stages read is the sum of theirs, taken from the last stage to the first.
  // Comm:       each edge's tensors once forward, their gradients once backward, and 96 bytes per
  //             tensor each time
  // Collective: every rank
  // Throws:     what a stage throws, on its rank; CommError on the others
  PipelineResult run(const Feed& feed, double seed = 1);
  // Runs forward of every microbatch and keeps no graph.
  // Comm:       each edge's tensors, and 96 bytes per tensor
  // Collective: every rank
  PipelineResult evaluate(const Feed& feed);

  const Schedule& schedule() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace trireme::parallel
