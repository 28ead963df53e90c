#include "trireme/train/chain_model.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/sharded_weights.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"
#include "trireme/train/task/running_statistics.h"

namespace trireme::train {

// A stage makes the whole chain and keeps the links of its part, because torch's modules draw their
// first values one after the other: a part that is made alone would begin with others. The
// generator is seeded before, under a lock, as ranks may be threads. The outline is what can be
// known without weights; the chain is made for it once and dropped. A parameter may be in one link
// only, since stages and ZeRO-3's units are made of links. Torch's norms with running statistics
// are refused, as those would be of one rank's samples.
//
// Torch's initialisers know whole tensors only. Where ZeRO will shard them, a stage therefore makes
// its chain twice, link by link: once for modules whose parameters then lose their memory, and once
// for values, of which the rank copies its parts. It has one whole link at a time, if the links are
// functions that make modules.

namespace {

std::string join(const std::string& link, const std::string& parameter) {
  return link.empty() ? parameter : concat(link, ".", parameter);
}

void check_statistics(const Chain::Link& link) {
  const auto norm = norm_with_own_statistics(*link.module, link.name);
  TRIREME_CHECK(!norm, "the model's \"", *norm,
                "\" is a norm of torch with running statistics, which would be those of one rank's "
                "samples; use trireme::model::BatchNorm");
}

// Gives each link of a new chain to `use`, in its order, with its module. The module lives on only
// if `use` keeps it. Torch's modules draw their initial values from the default generator, which
// ranks that are threads of one process share.
void for_each_link(const std::function<Chain()>& make, uint64_t seed,
                   const std::function<void(const Chain::Link& link)>& use) {
  static std::mutex building;
  const std::lock_guard lock(building);
  at::manual_seed(seed);
  std::vector<Chain::Link> links = make().take_links();
  TRIREME_CHECK(!links.empty(), "the model has no link; add one in make_chain()");
  std::set<std::string> names;
  std::set<const void*> tensors;  // of modules that were there from the beginning
  for (Chain::Link& link : links) {
    TRIREME_CHECK(names.insert(link.name).second, "two links of the model are named \"", link.name,
                  "\"; give each its own name");
    const bool was_there = link.module != nullptr;
    if (!was_there) link.make(link);
    TRIREME_CHECK(link.module != nullptr, "the link \"", link.name, "\" has no module");
    for (const auto& item : link.module->named_parameters()) {
      TRIREME_CHECK(parallel::has_memory(item.value()), "the link \"", link.name,
                    "\" returns a module that it has returned before; make a new one each time");
      TRIREME_CHECK(!was_there || tensors.insert(item.value().unsafeGetTensorImpl()).second,
                    "the parameter \"", join(link.name, item.key()),
                    "\" is also in an earlier link, and each could be on a rank of its own; put "
                    "both into one link");
    }
    check_statistics(link);
    use(link);
    link = {};
  }
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
  ChainStage(const std::function<Chain()>& make, const StageRequest& request, const ChainGoal& goal)
      : make_(make),
        goal_(goal),
        part_(request.part),
        seed_(request.config.train.seed),
        recompute_(request.config.recompute_plan()),
        input_(part_.embeds ? goal.input : hidden_edge(request.stage)),
        module_(std::make_shared<torch::nn::Module>()) {
    for_each_link_of_part([&](const Chain::Link& link) {
      link.module->to(request.config.dtype());
      // Modules that all stand there already take as much memory as the whole.
      if (part_.without_memory && link.make) {
        for (at::Tensor& parameter : link.module->parameters()) {
          parameter.set_data(parallel::without_memory(
              parameter.sizes(), parameter.options().device(*part_.without_memory)));
        }
      }
      links_.push_back(link);
      adopt(*module_, link.name, link.module);
      for (model::BatchNormImpl* const norm : model::batch_norms_of(*link.module)) {
        norm->axis = request.axes.batch;
      }
    });
  }

  void initialise(std::span<const parallel::Shard> shards) override {
    const at::NoGradGuard guard;
    std::multimap<std::string, const parallel::Shard*> by_name;
    for (const parallel::Shard& shard : shards) by_name.emplace(shard.name, &shard);
    for_each_link_of_part([&](const Chain::Link& link) {
      for (const auto& item : link.module->named_parameters()) {
        const auto [begin, end] = by_name.equal_range(join(link.name, item.key()));
        for (auto found = begin; found != end; ++found) {
          const parallel::Shard& shard = *found->second;
          const at::Tensor whole = item.value().detach().view(shard.layout.whole_shape());
          shard.weights.copy_(checkpoint::view_box(whole, shard.layout.whole_box(shard.rank)));
        }
      }
    });
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
      x = run_unit_(i, x, [&link = links_[i], i, this](const at::Tensor& input) {
        return model::run_block(
            recompute_.of_block(static_cast<int64_t>(i)),
            [&link](const std::vector<at::Tensor>& inputs) { return link.forward(inputs[0]); },
            {input});
      });
      if (verify::is_probing()) x = verify::probe(probe_of(i), x);
    }
    if (!part_.has_head || goal_.gives_output) return {x};
    std::vector<at::Tensor> outputs = {goal_.loss_sum(x, in)};
    if (goal_.metric_states) outputs.push_back(goal_.metric_states(x.detach(), in));
    return outputs;
  }

  int64_t num_terms(const dataset::Batch& batch) const override { return batch.size(); }

 private:
  // A link whose parameters have no prefix is named by its place in the chain.
  std::string probe_of(size_t i) const {
    const int64_t place = part_.first_layer + static_cast<int64_t>(i);
    return links_[i].name.empty() ? concat("link.", place) : links_[i].name;
  }
  void for_each_link_of_part(const std::function<void(const Chain::Link& link)>& use) const {
    int64_t layer = 0;
    for_each_link(make_, seed_, [&](const Chain::Link& link) {
      const bool is_below_end =
          part_.num_layers < 0 || layer < part_.first_layer + part_.num_layers;
      if (layer++ >= part_.first_layer && is_below_end) use(link);
    });
  }

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

  std::function<Chain()> make_;
  ChainGoal goal_;
  model::ModelPart part_;
  uint64_t seed_;
  model::RecomputePlan recompute_;
  std::string input_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Chain::Link> links_;
  parallel::RunUnit run_unit_ = parallel::run_directly;
};

}  // namespace

// Facts about the model that need no weights.
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
  for_each_link(make_, 0, [&](const Chain::Link& link) {
    Outline::Link known{.name = link.name, .cost = link.cost};
    for (const auto& item : link.module->named_parameters()) {
      found->parameters.push_back({join(link.name, item.key()), item.value().sizes().vec()});
      known.num_parameters += static_cast<double>(item.value().numel());
    }
    found->has_batch_norm |= !model::batch_norms_of(*link.module).empty();
    found->links.push_back(std::move(known));
  });
  outline_ = std::move(found);
  return *outline_;
}

void check_chain(const RunConfig& config) {
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

ModelTraits ChainModel::traits() const {
  constexpr double kForwardAndBackward = 3;  // backward computes two products for each
  ModelTraits traits{.axes = {"pipeline"}, .has_batch_norm = outline().has_batch_norm};
  double forward = 0, num_parameters = 0;
  for (const Outline::Link& link : outline().links) {
    traits.name += (traits.name.empty() ? "chain of " : " -> ") + link.name;
    forward += link.cost.flops;
    num_parameters += link.num_parameters;
  }
  traits.num_parameters = static_cast<int64_t>(num_parameters);
  traits.flops_per_sample = kForwardAndBackward * forward;
  return traits;
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
                                    static_cast<double>(config.largest_micro_batch())});
  }
  return costs;
}

std::vector<StageEdges> ChainModel::edges(int num_stages) const {
  const ChainGoal goal = goal_(/*seed=*/0);  // whose tensors' names are those of any seed
  std::vector<StageEdges> result;
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_last = stage + 1 == num_stages;
    StageEdges edges{.inputs = {stage == 0 ? goal.input : hidden_edge(stage)},
                     .outputs = {is_last ? "loss" : hidden_edge(stage + 1)}};
    if (is_last && goal.gives_output) {
      edges.outputs = {"scores"};
    } else if (is_last) {
      if (goal.metric_states) edges.outputs.push_back("metrics");
      for (const std::string& name : goal.targets) {
        if (std::ranges::count(edges.inputs, name) == 0) edges.inputs.push_back(name);
      }
    }
    result.push_back(std::move(edges));
  }
  return result;
}

std::unique_ptr<StageModel> ChainModel::make_stage(const StageRequest& request) const {
  return make_stage(request, goal_(request.config.train.seed));
}

std::unique_ptr<StageModel> ChainModel::make_stage(const StageRequest& request,
                                                   const ChainGoal& goal) const {
  return std::make_unique<ChainStage>(make_, request, goal);
}

}  // namespace trireme::train
