#include "trireme/parallel/pipeline/run/stage_runner.h"

#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

// The places that a backward needs: where gradients enter the graph and where they leave it. The
// outputs are not kept, so their memory can be freed.
// Source: Korthikanti et al. 2022, arXiv:2205.05198, appendix B
struct StageRunner::Live {
  std::vector<at::Tensor> inputs;  // leaves
  std::vector<torch::autograd::Edge> roots;
};

StageRunner::StageRunner(const PipelineStage& stage) : stage_(&stage) {
  TRIREME_CHECK(stage.forward != nullptr, "pipeline stage ", stage.name,
                " has no forward on the rank that holds it");
}
StageRunner::~StageRunner() = default;
StageRunner::StageRunner(StageRunner&&) noexcept = default;

void StageRunner::clear() { live_.clear(); }

std::vector<EdgeTensor> StageRunner::forward(int64_t microbatch, std::vector<EdgeTensor> inputs,
                                             bool keeps_graph) {
  Live live;
  for (EdgeTensor& input : inputs) {
    // A leaf of this stage's graph: backward ends here, and the gradient is sent on.
    at::Tensor leaf = input.value.detach();
    if (keeps_graph && input.requires_grad) leaf.requires_grad_();
    live.inputs.push_back(std::move(leaf));
    // The caller's reference would keep the tensor alive.
    input.value.reset();
  }
  const c10::AutoGradMode records(keeps_graph);
  std::vector<at::Tensor> outputs = stage_->forward(microbatch, live.inputs);
  TRIREME_CHECK(outputs.size() == stage_->outputs.size(), "pipeline stage ", stage_->name,
                " returned ", outputs.size(), " outputs; expected ", stage_->outputs.size());
  std::vector<EdgeTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    TRIREME_CHECK(outputs[i].defined(), "pipeline stage ", stage_->name, " returned no \"",
                  stage_->outputs[i], "\"");
    const bool has_graph = keeps_graph && outputs[i].requires_grad();
    // The edge and not the tensor: an output's memory is free as soon as the next stage has it.
    live.roots.push_back(has_graph ? torch::autograd::impl::gradient_edge(outputs[i])
                                   : torch::autograd::Edge());
    // Detached: the next stage's graph begins with a leaf of its own.
    results.push_back({outputs[i].detach(), has_graph});
  }
  if (keeps_graph) {
    const bool is_new = live_.emplace(microbatch, std::make_unique<Live>(std::move(live))).second;
    TRIREME_ASSERT(is_new, "two forwards of microbatch ", microbatch, " on ", stage_->name);
  }
  return results;
}

std::vector<at::Tensor> StageRunner::backward(int64_t microbatch,
                                              std::vector<at::Tensor> gradients) {
  auto node = live_.extract(microbatch);
  TRIREME_ASSERT(!node.empty(), "no forward of microbatch ", microbatch, " on ", stage_->name);
  Live& live = *node.mapped();
  torch::autograd::edge_list roots;
  torch::autograd::variable_list seeds;
  for (size_t i = 0; i < live.roots.size(); ++i) {
    if (!live.roots[i].is_valid() || !gradients[i].defined()) continue;
    roots.push_back(std::move(live.roots[i]));
    seeds.push_back(std::move(gradients[i]));
  }
  // No gradient has come: the microbatch did not use this stage.
  if (!roots.empty()) {
    torch::autograd::Engine::get_default_engine().execute(roots, seeds, /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
  std::vector<at::Tensor> results;
  for (at::Tensor& input : live.inputs) results.push_back(std::move(input.mutable_grad()));
  return results;
}

}  // namespace trireme::parallel
