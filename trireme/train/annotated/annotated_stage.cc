#include "trireme/train/annotated/annotated_stage.h"

#include <set>
#include <utility>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/spmd/place_as.h"
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

AnnotatedStage::AnnotatedStage(const AnnotatedProblem& problem, const StageRequest& request)
    : problem_(problem),
      seed_(request.config.train.seed),
      dtype_(request.config.dtype()),
      alone_(group_of_one(request.axes)),
      mesh_(alone_ ? *alone_ : *request.axes.tensor.group,
            {{"tensor", request.axes.tensor.size()}}),
      blocks_(std::make_shared<torch::nn::Module>()) {
  spmd::Annotations notes = problem.annotations();
  notes.seed = seed_;
  for (const spmd::Annotation& input : notes.inputs) inputs_.push_back(input.name);
  make_net(notes);
}

void AnnotatedStage::make_net(const spmd::Annotations& notes) {
  tensors_.emplace(mesh_, notes);
  tensors_->make([this] {
    net_.emplace(problem_.make_net());
    net_->module().to(dtype_);
    return &net_->module();
  });
  std::set<const c10::TensorImpl*> held;  // under their first names
  for (const bool is_parameter : {true, false}) {
    for (const auto& item :
         is_parameter ? net_->module().named_parameters() : net_->module().named_buffers()) {
      if (held.insert(item.value().unsafeGetTensorImpl()).second)
        hold(item.key(), item.value(), is_parameter);
    }
  }
}

void AnnotatedStage::hold(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  std::string last = name;
  torch::nn::Module& parent = parent_of(*blocks_, last);
  if (!is_parameter) {
    parent.register_buffer(last, tensor);
    return;
  }
  const at::Tensor block = parent.register_parameter(last, spmd::placed(tensor)->local.contiguous(),
                                                     tensor.requires_grad());
  parameters_.push_back({tensor, block});
  if (!tensor.requires_grad()) return;
  torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<GradientOfBlock>(block));
}

// ZeRO puts the blocks into its buckets, and the run may freeze some.
void AnnotatedStage::follow_blocks() {
  for (Parameter& parameter : parameters_) {
    spmd::placed(parameter.placed)->local = parameter.block.detach();
    if (parameter.placed.requires_grad() != parameter.block.requires_grad())
      parameter.placed.set_requires_grad(parameter.block.requires_grad());
  }
}

// The masks depend on an element's place in the whole microbatch, whatever the tensor axis.
void AnnotatedStage::seed_dropout(const model::TrainingPlace& place) const {
  const std::string stream = concat("dropout/", place.step, "/", place.first_sample);
  tensors_->grid()->random() = {.seed = random_key(seed_, stream).value};
}

std::vector<at::Tensor> AnnotatedStage::forward(const StageInput& in) {
  follow_blocks();
  if (net_->module().is_training() != in.training.has_value())
    net_->module().train(in.training.has_value());
  if (in.training) seed_dropout(*in.training);
  std::vector<at::Tensor> inputs;
  for (const std::string& name : inputs_) {
    const at::Tensor x = in[name];
    inputs.push_back(tensors_->input(inputs.size(), x.is_floating_point() ? x.to(dtype_) : x));
  }
  const at::Tensor output = tensors_->output(0, net_->forward(inputs));
  std::vector<at::Tensor> results = {spmd::leave_grid(problem_.loss_sum(output, in), "loss")};
  if (problem_.has_metrics()) {
    const at::NoGradGuard no_gradient;
    results.push_back(problem_.metric_states(spmd::whole_of(output), in));
  }
  return results;
}

}  // namespace trireme::train
