#include "trireme/train/chain_task.h"

#include <algorithm>
#include <mutex>
#include <set>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

// The hidden state that enters stage number `stage`.
std::string hidden_edge(int stage) { return concat("hidden ", stage); }

// Torch's modules draw their initial values from the default generator, which ranks that are
// threads of one process share.
Chain seeded_chain(const ChainTask& task, uint64_t seed) {
  static std::mutex building;
  const std::lock_guard lock(building);
  at::manual_seed(seed);
  Chain chain = task.make_chain();
  TRIREME_CHECK(!chain.links().empty(), "the model has no link; add one in make_chain()");
  std::set<std::string> names;
  std::set<const void*> tensors;
  for (const Chain::Link& link : chain.links()) {
    TRIREME_CHECK(names.insert(link.name).second, "two links of the model are named \"", link.name,
                  "\"; give each its own name");
    for (const auto& item : link.module->named_parameters()) {
      TRIREME_CHECK(tensors.insert(item.value().unsafeGetTensorImpl()).second, "the parameter \"",
                    link.name, ".", item.key(),
                    "\" is also in an earlier link, and each could be on a rank of its own; put "
                    "both into one link");
    }
  }
  return chain;
}

double elements_of(const torch::nn::Module& module) {
  double count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    count += static_cast<double>(parameter.numel());
  }
  return count;
}

class ChainStage : public StageModel {
 public:
  ChainStage(const ChainTask& task, const StageRequest& request)
      : task_(task),
        part_(request.part),
        has_metrics_(!task.metrics().empty()),
        seed_(request.config.train.seed),
        recomputes_(request.config.train.recompute == model::Recompute::kFull),
        input_(part_.embeds ? task.input_name() : hidden_edge(request.stage)),
        module_(std::make_shared<torch::nn::Module>()) {
    const Chain chain = seeded_chain(task, seed_);
    const auto first = chain.links().begin() + part_.first_layer;
    links_.assign(first, first + part_.num_layers);
    for (const Chain::Link& link : links_) {
      link.module->to(request.config.dtype());
      module_->register_module(link.name, link.module);
    }
    for (const auto& item : module_->named_buffers()) {
      throw ConfigError(concat("the model has the buffer \"", item.key(),
                               "\", and ranks do not agree on buffers yet; use a norm without "
                               "running statistics, such as LayerNorm or GroupNorm"));
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
    if (module_->is_training() != in.training.has_value()) module_->train(in.training.has_value());
    if (in.training) seed_dropout(*in.training);
    at::Tensor x = in[input_];
    if (part_.embeds && x.is_floating_point()) x = x.to(dtype());
    for (size_t i = 0; i < links_.size(); ++i) {
      x = run_unit_(i, x, [&link = links_[i], this](const at::Tensor& input) {
        return model::recompute_if(
            recomputes_,
            [&link](const std::vector<at::Tensor>& inputs) { return link.forward(inputs[0]); },
            {input});
      });
    }
    if (!part_.has_head) return {x};
    std::vector<at::Tensor> outputs = {task_.loss_sum(x, in)};
    if (has_metrics_) outputs.push_back(task_.metric_states(x.detach(), in));
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

  const ChainTask& task_;
  model::ModelPart part_;
  bool has_metrics_;
  uint64_t seed_;
  bool recomputes_;
  std::string input_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Chain::Link> links_;
  parallel::RunUnit run_unit_ = parallel::run_directly;
};

}  // namespace

at::Tensor accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B) {
  const at::Tensor right = logits_BC.argmax(1).eq(labels_B).sum().to(at::kDouble);
  return at::stack({right, at::full_like(right, static_cast<double>(labels_B.size(0)))});
}

at::Tensor ChainTask::metric_states(const at::Tensor& /*output*/,
                                    const StageInput& /*batch*/) const {
  TRIREME_ASSERT(metrics().empty(), "a task with metrics that does not compute their states");
  return {};
}

std::vector<model::ParameterPlan> ChainTask::parameters(int tensor_ranks) const {
  std::vector<model::ParameterPlan> plan;
  const Chain chain = seeded_chain(*this, 0);
  for (const Chain::Link& link : chain.links()) {
    for (const auto& item : link.module->named_parameters()) {
      plan.push_back({concat(link.name, ".", item.key()),
                      mesh::Layout(item.value().sizes().vec(), {{"tensor", tensor_ranks}})});
    }
  }
  return plan;
}

int64_t ChainTask::num_parameters() const {
  double count = 0;
  const Chain chain = seeded_chain(*this, 0);
  for (const Chain::Link& link : chain.links()) count += elements_of(*link.module);
  return static_cast<int64_t>(count);
}

// Time is taken as proportional to the number of parameters, as in matrix products. Activations are
// not known before the model runs, and count as nothing.
std::vector<parallel::LayerCost> ChainTask::layer_costs(const RunConfig& config) const {
  constexpr int64_t kWidth = 256;  // of the matrix whose optimizer states are counted
  const double per_parameter = state_bytes_per_parameter(config, kWidth);
  std::vector<parallel::LayerCost> costs;
  const Chain chain = seeded_chain(*this, 0);
  for (const Chain::Link& link : chain.links()) {
    const double elements = elements_of(*link.module);
    costs.push_back({.time = std::max(elements, 1.0), .memory = elements * per_parameter});
  }
  return costs;
}

std::vector<StageEdges> ChainTask::edges(int num_stages) const {
  std::vector<StageEdges> result;
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_last = stage + 1 == num_stages;
    StageEdges edges{.inputs = {stage == 0 ? input_name() : hidden_edge(stage)},
                     .outputs = {is_last ? "loss" : hidden_edge(stage + 1)}};
    if (is_last) {
      if (!metrics().empty()) edges.outputs.push_back("metrics");
      for (const std::string& name : target_names()) {
        if (std::ranges::count(edges.inputs, name) == 0) edges.inputs.push_back(name);
      }
    }
    result.push_back(std::move(edges));
  }
  return result;
}

std::unique_ptr<StageModel> ChainTask::make_stage(const StageRequest& request) const {
  return std::make_unique<ChainStage>(*this, request);
}

void ChainTask::check(const RunConfig& config) const {
  TRIREME_CHECK(config.train.recompute != model::Recompute::kSelective,
                "train.recompute is \"selective\", and the model of task ", config.task_choice.name,
                " has no parts to select from; set it to \"full\" or \"none\"");
}

std::string ChainTask::model_name() const {
  std::string names;
  const Chain chain = seeded_chain(*this, 0);
  for (const Chain::Link& link : chain.links()) {
    names += (names.empty() ? "" : " -> ") + link.name;
  }
  return concat("chain of ", names);
}

double ChainTask::sample_bytes() const {
  double bytes = 0;
  for (const auto& [name, tensor] : training().get(0, std::nullopt)) {
    bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace trireme::train
