#include "trireme/train/annotated/annotated_stage.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/mesh/probe.h"
#include "trireme/spmd/place_as.h"
#include "trireme/spmd/placed_tensor.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The grid has the tensor axis only. Ranks of the data axis have grids of their own and other
// samples, and the loop sums their gradients: once per step, in buckets behind backward. So a
// parameter is two leaves of autograd: the placed one, which the net uses, and this rank's block of
// it, which data parallelism, optimizer and checkpoints use. They share memory. A gradient of the
// first, reduced over the tensor axis if need be, becomes one of the second, as if autograd had
// accumulated it there.

namespace {

std::unique_ptr<comm::Communicator> group_of_one(const model::ModelAxes& axes) {
  if (axes.tensor.group != nullptr) return nullptr;
  return std::move(comm::make_thread_group(1).front());
}

// Gives the block's hook, which is data parallelism's, the gradient of the placed parameter.
struct GradientOfBlock : torch::autograd::PostAccumulateGradHook {
  explicit GradientOfBlock(at::Tensor held) : block(std::move(held)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    const at::Tensor gradient = std::exchange(parameter.mutable_grad(), {});
    if (!gradient.defined()) return;
    block.mutable_grad() = spmd::placed(gradient)->local;
    const auto& hook = torch::autograd::impl::post_acc_grad_hooks(block);
    if (hook) (*hook)(block);
  }
  at::Tensor block;
};

// The module at the dotted path of `name`, made where it is missing; `name` becomes its last part.
torch::nn::Module& parent_of(torch::nn::Module& root, std::string& name) {
  torch::nn::Module* module = &root;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    const std::string head = name.substr(0, dot);
    const auto children = module->named_children();
    const auto* const found = children.find(head);
    module = found != nullptr
                 ? found->get()
                 : module->register_module(head, std::make_shared<torch::nn::Module>()).get();
    name.erase(0, dot + 1);
  }
  return *module;
}

}  // namespace

AnnotatedStage::AnnotatedStage(const AnnotatedProblem& problem, const StageRequest& request,
                               StageLinks links)
    : problem_(problem),
      links_(std::move(links)),
      part_(request.part),
      stage_(request.stage),
      seed_(request.config.train.seed),
      dtype_(request.config.dtype()),
      recompute_(request.config.recompute_plan()),
      alone_(group_of_one(request.axes)),
      mesh_(alone_ ? *alone_ : *request.axes.tensor.group,
            {{"tensor", request.axes.tensor.size()}}),
      blocks_(std::make_shared<torch::nn::Module>()) {
  links_.notes.seed = seed_;
  make_net();
}

// The links of other stages draw their initial values and are dropped before they have memory.
void AnnotatedStage::make_net() {
  tensors_.emplace(mesh_, links_.notes);
  tensors_->make([this] {
    net_.emplace(problem_.make_net().part(links_.first, links_.count));
    net_->module().to(dtype_);
    return &net_->module();
  });
  std::set<const c10::TensorImpl*> held;  // under their first names
  for (const AnnotatedNet::Link& link : net_->links()) {
    parallel::Unit unit{.name = link.name, .parameters = {}};
    for (const auto& item : link.module->named_parameters()) {
      if (held.insert(item.value().unsafeGetTensorImpl()).second)
        unit.parameters.push_back(hold_block(link.name_of(item.key()), item.value()));
    }
    units_.push_back(std::move(unit));
  }
  for (const AnnotatedNet::Link& link : net_->links()) {
    for (const auto& item : link.module->named_buffers()) {
      if (!held.insert(item.value().unsafeGetTensorImpl()).second) continue;
      std::string last = link.name_of(item.key());
      torch::nn::Module& parent = parent_of(*blocks_, last);
      parent.register_buffer(last, item.value());
    }
  }
}

at::Tensor AnnotatedStage::hold_block(const std::string& name, const at::Tensor& parameter) {
  std::string last = name;
  torch::nn::Module& parent = parent_of(*blocks_, last);
  const at::Tensor block = parent.register_parameter(
      last, spmd::placed(parameter)->local.contiguous(), parameter.requires_grad());
  parameters_.push_back({parameter, block});
  if (parameter.requires_grad()) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<GradientOfBlock>(block));
  }
  return block;
}

// ZeRO puts the blocks into its buckets, and the run may freeze some.
void AnnotatedStage::follow_blocks() {
  for (Parameter& parameter : parameters_) {
    spmd::placed(parameter.placed)->local = parameter.block.detach();
    if (parameter.placed.requires_grad() != parameter.block.requires_grad())
      parameter.placed.set_requires_grad(parameter.block.requires_grad());
  }
}

// Data parallelism has its memory now; that in which the blocks were made goes.
void AnnotatedStage::run_units_with(parallel::RunUnit run) {
  run_unit_ = std::move(run);
  follow_blocks();
}

// The masks depend on an element's place in the whole microbatch and on the link, whatever the
// axes, and are drawn again when the link is recomputed.
void AnnotatedStage::seed_dropout(const model::TrainingPlace& place, size_t link) const {
  const std::string stream =
      concat("dropout/", place.step, "/", place.first_sample, "/", links_.first + link);
  tensors_->grid()->random() = {.seed = random_key(seed_, stream).value};
}

std::vector<at::Tensor> AnnotatedStage::inputs_of(const StageInput& in) const {
  if (!part_.embeds) {
    const std::string name = hidden_edge(stage_);
    return {spmd::place_as(tensors_->grid(), in[name], spmd::Places(), name)};
  }
  std::vector<at::Tensor> inputs;
  for (const spmd::Annotation& input : links_.notes.inputs) {
    const at::Tensor x = in[input.name];
    inputs.push_back(tensors_->input(inputs.size(), x.is_floating_point() ? x.to(dtype_) : x));
  }
  return inputs;
}

at::Tensor AnnotatedStage::run_link(size_t link, const std::vector<at::Tensor>& inputs,
                                    const std::optional<model::TrainingPlace>& place) {
  const model::RecomputePlan plan = recompute_.of_block(static_cast<int64_t>(link));
  const size_t count = inputs.size();
  std::vector<at::Tensor> kept = inputs;
  // Recomputation follows a gradient to one of its inputs, and those may all be integers.
  if (plan.block && std::ranges::none_of(inputs, &at::Tensor::is_floating_point))
    kept.push_back(at::zeros({1}, dtype_));
  const auto forward = [this, link, place, count](const std::vector<at::Tensor>& in) {
    if (place) seed_dropout(*place, link);
    return net_->links()[link].forward(std::span(in).first(count));
  };
  return model::run_block(plan, forward, kept);
}

at::Tensor AnnotatedStage::run_links(const StageInput& in) {
  std::vector<at::Tensor> inputs = inputs_of(in);
  for (size_t link = 0; link < net_->links().size(); ++link) {
    at::Tensor output = run_unit_(link, inputs.front(), [&](const at::Tensor& first) {
      inputs.front() = first;
      return run_link(link, inputs, in.training);
    });
    const std::string& name = net_->links()[link].name;
    inputs = {verify::probe(name.empty() ? "output" : name, output)};
  }
  return inputs.front();
}

std::vector<at::Tensor> AnnotatedStage::forward(const StageInput& in) {
  follow_blocks();
  tensors_->begin_forward(in.training.has_value());
  if (net_->module().is_training() != in.training.has_value())
    net_->module().train(in.training.has_value());
  std::optional<verify::ProbeScope> scope;
  if (verify::is_probing()) {
    verify::ProbeContext context = verify::probe_context();
    probes_.serve(*std::exchange(context.sink, &probes_));
    scope.emplace(std::move(context));
  }
  const at::Tensor last = run_links(in);
  if (!part_.has_head) return {spmd::leave_grid(last, hidden_edge(stage_ + 1))};
  const at::Tensor output = tensors_->output(0, last);
  if (links_.goal == NetGoal::kScores) return {spmd::whole_of(output)};
  std::vector<at::Tensor> results = {spmd::leave_grid(problem_.loss_sum(output, in), "loss")};
  if (problem_.has_metrics()) {
    const at::NoGradGuard no_gradient;
    results.push_back(problem_.metric_states(spmd::whole_of(output), in));
  }
  return results;
}

}  // namespace trireme::train
