// Runs a pipeline schedule: this rank's stages, the tensors between ranks in the background. One
// executor for every schedule; the schedule changes when things run, never a bit of what they
// compute.
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
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/pipeline/run/deferred_work.h"
#include "trireme/parallel/pipeline/run/profile.h"
#include "trireme/parallel/pipeline/run/stage_graph.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Runs `work` for a stage and microbatch: where data parallelism begins and ends a microbatch's
// gradients. Must call it once.
using AroundBackward =
    std::function<void(int stage, int64_t microbatch, const std::function<void()>& work)>;
// The tensor of an edge from outside, for the stages of this rank that read it.
using Feed = std::function<at::Tensor(const std::string& edge, int64_t microbatch)>;

struct PipelineOptions {
  std::vector<std::string> fed = {};  // edges that come from outside
  // The edge that backward starts from: a scalar that no stage reads. Empty: none, evaluation
  // alone.
  std::string loss = "loss";
  // Around autograd's run for a backward, or its input part; and around its weight part.
  AroundBackward around_backward = {};
  AroundBackward around_backward_weight = {};
  // Where layers leave their weights' gradients when a backward is split; null: they never do.
  // Outlives the executor.
  DeferredWork* deferred = nullptr;
  std::chrono::milliseconds timeout{0};  // of each transfer; zero: the group's own
  at::Device device = at::kCPU;          // of tensors that are received
};

struct PipelineResult {
  // Outputs that no stage reads, of this rank's stages: one tensor a microbatch.
  std::map<std::string, std::vector<at::Tensor>> outputs;
  PipelineProfile profile;
};

// Thread safety: one thread drives it. The group must outlive it, and serve nobody else while it
// runs. After an exception the group is dead.
class PipelineExecutor {
 public:
  // `stages`: all of the model, the same on every rank. The schedule's transfers are replaced by
  // what the stages' edges need.
  // Comm:       all ranks' descriptions
  // Collective: every rank of the group
  // Throws:     ConfigError when the schedule is wrong or for another number of ranks or stages, an
  //             edge is wrong, the loss is missing or read, or ranks differ
  PipelineExecutor(comm::Communicator& group, std::vector<PipelineStage> stages, Schedule schedule,
                   PipelineOptions options = {});
  ~PipelineExecutor();
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  // Forward and backward of every microbatch. Gradients are added to the parameters' .grad():
  // `seed` times that of the sum of the losses. An edge that several stages read gets their
  // gradients' sum, from the last stage to the first.
  // Comm:       each edge's tensors once forward and once backward, and 96 bytes a tensor each time
  // Collective: every rank
  // Throws:     what a stage throws; CommError on the other ranks then
  PipelineResult run(const Feed& feed, double seed = 1);
  // Forward alone, without graphs.
  // Collective: every rank
  PipelineResult evaluate(const Feed& feed);

  const Schedule& schedule() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace trireme::parallel
