#include "trireme/train/chain_model.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

std::string join(const std::string& link, const std::string& parameter) {
  return link.empty() ? parameter : concat(link, ".", parameter);
}

template <typename Impl>
bool keeps_statistics(const torch::nn::Module& module) {
  const auto* const norm = dynamic_cast<const Impl*>(&module);
  return norm != nullptr && norm->options.track_running_stats();
}

void check_statistics(const Chain::Link& link) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): six of its names
  const auto check = [](const std::string& name, const Module& module) {
    const bool is_torch_norm =
        keeps_statistics<BatchNorm1dImpl>(module) || keeps_statistics<BatchNorm2dImpl>(module) ||
        keeps_statistics<BatchNorm3dImpl>(module) || keeps_statistics<InstanceNorm1dImpl>(module) ||
        keeps_statistics<InstanceNorm2dImpl>(module) ||
        keeps_statistics<InstanceNorm3dImpl>(module);
    TRIREME_CHECK(!is_torch_norm, "the model's \"", name,
                  "\" is a norm of torch with running statistics, which would be those of one "
                  "rank's samples; use trireme::model::BatchNorm");
  };
  std::as_const(*link.module).apply(check, link.name);
}

// Torch's modules draw their initial values from the default generator, which ranks that are
// threads of one process share.
Chain seeded_chain(const std::function<Chain()>& make, uint64_t seed) {
  static std::mutex building;
  const std::lock_guard lock(building);
  at::manual_seed(seed);
  Chain chain = make();
  TRIREME_CHECK(!chain.links().empty(), "the model has no link; add one in make_chain()");
  std::set<std::string> names;
  std::set<const void*> tensors;
  for (const Chain::Link& link : chain.links()) {
    TRIREME_CHECK(names.insert(link.name).second, "two links of the model are named \"", link.name,
                  "\"; give each its own name");
    for (const auto& item : link.module->named_parameters()) {
      TRIREME_CHECK(tensors.insert(item.value().unsafeGetTensorImpl()).second, "the parameter \"",
                    join(link.name, item.key()),
                    "\" is also in an earlier link, and each could be on a rank of its own; put "
                    "both into one link");
    }
    check_statistics(link);
  }
  return chain;
}

// Registers `module` at the dotted `path`, with plain modules on the way.
void adopt(torch::nn::Module& root, const std::string& path,
           const std::shared_ptr<torch::nn::Module>& module) {
  if (path.empty()) {
    for (const auto& child : module->named_children()) {
      root.register_module(child.key(), child.value());
    }
    return;
  }
  const size_t dot = path.find('.');
  const std::string head = path.substr(0, dot);
  if (dot == std::string::npos) {
    root.register_module(head, module);
    return;
  }
  const auto children = root.named_children();
  const std::shared_ptr<torch::nn::Module>* const found = children.find(head);
  const auto next =
      found != nullptr ? *found : root.register_module(head, std::make_shared<torch::nn::Module>());
  adopt(*next, path.substr(dot + 1), module);
}

class ChainStage : public StageModel {
 public:
  ChainStage(Chain chain, const StageRequest& request, const ChainGoal& goal)
      : goal_(goal),
        part_(request.part),
        seed_(request.config.train.seed),
        recomputes_(request.config.train.recompute == model::Recompute::kFull),
        input_(part_.embeds ? goal.input : hidden_edge(request.stage)),
        module_(std::make_shared<torch::nn::Module>()) {
    const auto first = chain.links().begin() + part_.first_layer;
    links_.assign(first, part_.num_layers < 0 ? chain.links().end() : first + part_.num_layers);
    for (const Chain::Link& link : links_) {
      link.module->to(request.config.dtype());
      adopt(*module_, link.name, link.module);
      for (model::BatchNormImpl* const norm : model::batch_norms_of(*link.module)) {
        norm->axis = request.axes.batch;
      }
    }
  }

  torch::nn::Module& module() override { return *module_; }

  std::vector<parallel::Unit> units() const override {
    std::vector<parallel::Unit> units;
    for (const Chain::Link& link : links_) {
      units.push_back({.name = link.name, .parameters = link.module->parameters()});
    }
    return units;
  }
  void run_units_with(parallel::RunUnit run) override { run_unit_ = std::move(run); }

  std::vector<at::Tensor> forward(const StageInput& in) override {
    for (const Chain::Link& link : links_) {
      if (link.module->is_training() != in.training.has_value()) {
        link.module->train(in.training.has_value());
      }
    }
    if (in.training) seed_dropout(*in.training);
    at::Tensor x = in[input_];
    if (part_.embeds) x = goal_.prepare(x, dtype(), in);
    for (size_t i = 0; i < links_.size(); ++i) {
      x = run_unit_(i, x, [&link = links_[i], this](const at::Tensor& input) {
        return model::recompute_if(
            recomputes_,
            [&link](const std::vector<at::Tensor>& inputs) { return link.forward(inputs[0]); },
            {input});
      });
    }
    if (!part_.has_head) return {x};
    std::vector<at::Tensor> outputs = {goal_.loss_sum(x, in)};
    if (goal_.metric_states) outputs.push_back(goal_.metric_states(x.detach(), in));
    return outputs;
  }

  int64_t num_terms(const dataset::Batch& batch) const override { return batch.size(); }

 private:
  // Torch's modules draw their masks from the default generator. They are then the same on every
  // rank that has this microbatch, and after every resume.
  void seed_dropout(const model::TrainingPlace& place) const {
    at::manual_seed(random_key(seed_, concat("dropout/", place.step, "/", place.first_sample, "/",
                                             part_.first_layer))
                        .value);
  }

  at::ScalarType dtype() const {
    const auto parameters = module_->parameters();
    return parameters.empty() ? at::kFloat : parameters.front().scalar_type();
  }

  ChainGoal goal_;
  model::ModelPart part_;
  uint64_t seed_;
  bool recomputes_;
  std::string input_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Chain::Link> links_;
  parallel::RunUnit run_unit_ = parallel::run_directly;
};

}  // namespace

// What is known of the model without its weights.
struct ChainModel::Outline {
  struct Link {
    std::string name;
    LinkCost cost{};
    double num_parameters = 0;
  };
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape{};
  };
  std::vector<Link> links{};
  std::vector<Parameter> parameters{};
  bool has_batch_norm = false;
};

const ChainModel::Outline& ChainModel::outline() const {
  if (outline_) return *outline_;
  auto found = std::make_shared<Outline>();
  const Chain chain = seeded_chain(make_, 0);
  for (const Chain::Link& link : chain.links()) {
    Outline::Link known{.name = link.name, .cost = link.cost};
    for (const auto& item : link.module->named_parameters()) {
      found->parameters.push_back({join(link.name, item.key()), item.value().sizes().vec()});
      known.num_parameters += static_cast<double>(item.value().numel());
    }
    found->has_batch_norm |= !model::batch_norms_of(*link.module).empty();
    found->links.push_back(std::move(known));
  }
  outline_ = std::move(found);
  return *outline_;
}

void ChainModel::check(const RunConfig& config) {
  TRIREME_CHECK(config.train.recompute != model::Recompute::kSelective,
                "train.recompute is \"selective\", and the model of task ", config.task_choice.name,
                " has no parts to select from; set it to \"full\" or \"none\"");
}

std::vector<model::ParameterPlan> ChainModel::parameters(model::AxisSizes sizes) const {
  std::vector<model::ParameterPlan> plan;
  for (const Outline::Parameter& parameter : outline().parameters) {
    plan.push_back({parameter.name, mesh::Layout(parameter.shape, {{"tensor", sizes.tensor}})});
  }
  return plan;
}

int64_t ChainModel::num_parameters() const {
  double count = 0;
  for (const Outline::Link& link : outline().links) count += link.num_parameters;
  return static_cast<int64_t>(count);
}

std::vector<parallel::LayerCost> ChainModel::layer_costs(const RunConfig& config) const {
  constexpr int64_t kWidth = 256;  // of the matrix whose optimizer states are counted
  const double per_parameter = state_bytes_per_parameter(config, kWidth);
  const auto& links = outline().links;
  const bool has_flops =
      std::ranges::any_of(links, [](const Outline::Link& link) { return link.cost.flops > 0; });
  std::vector<parallel::LayerCost> costs;
  for (const Outline::Link& link : links) {
    costs.push_back({.time = std::max(has_flops ? link.cost.flops : link.num_parameters, 1.0),
                     .memory = link.num_parameters * per_parameter,
                     .activations = link.cost.activations * itemsize(config) *
                                    static_cast<double>(config.train.micro_batch)});
  }
  return costs;
}

// Backward computes two products for each of forward's.
double ChainModel::flops() const {
  double forward = 0;
  for (const Outline::Link& link : outline().links) forward += link.cost.flops;
  return 3 * forward;
}

std::vector<StageEdges> ChainModel::edges(int num_stages, const ChainGoal& goal) const {
  std::vector<StageEdges> result;
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_last = stage + 1 == num_stages;
    StageEdges edges{.inputs = {stage == 0 ? goal.input : hidden_edge(stage)},
                     .outputs = {is_last ? "loss" : hidden_edge(stage + 1)}};
    if (is_last) {
      if (goal.metric_states) edges.outputs.push_back("metrics");
      for (const std::string& name : goal.targets) {
        if (std::ranges::count(edges.inputs, name) == 0) edges.inputs.push_back(name);
      }
    }
    result.push_back(std::move(edges));
  }
  return result;
}

bool ChainModel::has_batch_norm() const { return outline().has_batch_norm; }

std::string ChainModel::name() const {
  std::string names;
  for (const Outline::Link& link : outline().links) {
    names += (names.empty() ? "" : " -> ") + link.name;
  }
  return names;
}

std::unique_ptr<StageModel> ChainModel::make_stage(const StageRequest& request,
                                                   const ChainGoal& goal) const {
  return std::make_unique<ChainStage>(seeded_chain(make_, request.config.train.seed), request,
                                      goal);
}

}  // namespace trireme::train
