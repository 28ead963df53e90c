#include "trireme/tasks/language/costs/part_training.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/accumulate.h>

#include "trireme/mesh/layout.h"
#include "trireme/model/family/adapter_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {
namespace {

using Parameters = std::vector<model::ParameterPlan>;

bool is_of_experts(const model::ParameterPlan& parameter) {
  return parameter.name.find(".experts.") != parameter.name.npos;
}

// "self_attn", "attn", "attention".
bool is_of_attention(const model::ParameterPlan& parameter) {
  return parameter.name.find("attn") != parameter.name.npos ||
         parameter.name.find("attention") != parameter.name.npos;
}

double weights_in(const model::ParameterPlan& parameter) {
  return parameter.weights_per_element *
         static_cast<double>(c10::multiply_integers(parameter.layout.whole_shape()));
}

// Parameters without adapters; those that are trained, with adapters; and the number of weights in
// the run's dtype that take the bytes of all.
struct Sums {
  double own = 0, trained = 0, kept = 0;

  double share_trained() const { return own > 0 ? trained / own : 1; }
  double share_kept() const { return own > 0 ? kept / own : 1; }
};

class PartCounter {
 public:
  PartCounter(const train::RunConfig& config, const std::set<std::string>& frozen)
      : config_(config), frozen_(frozen) {}

  template <typename Counts>
  Sums count(const Parameters& parameters, const Counts& counts) const {
    Sums sums;
    for (const model::ParameterPlan& parameter : parameters) {
      if (!counts(parameter)) continue;
      const double weights = weights_in(parameter);
      if (!model::is_of_adapter(parameter.name)) sums.own += weights;
      if (is_trained(parameter)) sums.trained += weights;
      sums.kept += train::kept_bytes(config_, parameter) / train::itemsize(config_);
    }
    return sums;
  }
  bool is_trained(const model::ParameterPlan& parameter) const {
    return !frozen_.contains(parameter.name);
  }

  // Without what other parts decide.
  plan::PartTraining part(const Parameters& parameters) const {
    const Sums experts = count(parameters, is_of_experts),
               own = count(parameters, std::not_fn(is_of_experts));
    const auto in_products = [&](bool of_attention) {
      return count(parameters,
                   [=](const model::ParameterPlan& parameter) {
                     return !model::is_of_adapter(parameter.name) &&
                            parameter.layout.whole_shape().size() ==
                                (is_of_experts(parameter) ? 3 : 2) &&
                            is_of_attention(parameter) == of_attention;
                   })
          .share_trained();
    };
    return {.trained = own.share_trained(),
            .kept = own.share_kept(),
            .trained_experts = experts.share_trained(),
            .kept_experts = experts.share_kept(),
            .products = in_products(true),
            .feed_forward_products = in_products(false),
            .has_backward = own.trained + experts.trained > 0};
  }

 private:
  const train::RunConfig& config_;
  const std::set<std::string>& frozen_;
};

// The layer, or the stack, that has the adapter whose A this is; its Bs are in the plan too.
plan::AdaptedLayer adapted_layer(const model::ModelPlan& plan, const model::ParameterPlan& a) {
  const std::string layer =
      a.name.substr(0, a.name.size() - std::string_view(model::kAdapterA).size());
  const std::vector<int64_t>& shape = a.layout.whole_shape();
  const auto is_of_inputs = [&](const mesh::Placement& placement) {
    return placement.kind == mesh::Placement::Kind::kSharded &&
           placement.dim + 1 == std::ssize(shape);
  };
  plan::AdaptedLayer adapted{
      .inputs = static_cast<double>(shape.back()),
      .splits_inputs = std::ranges::any_of(a.layout.placements(), is_of_inputs),
      .is_of_attention = is_of_attention(a),
      .is_of_experts = is_of_experts(a)};
  for (const model::ParameterPlan& b : plan.parameters()) {
    if (!b.name.ends_with(model::kAdapterB)) continue;
    const std::string own =
        b.name.substr(0, b.name.size() - std::string_view(model::kAdapterB).size());
    if (own != layer && model::adapted_stack(own) != layer) continue;
    const std::vector<int64_t>& shape_of_b = b.layout.whole_shape();
    adapted.outputs += static_cast<double>(shape_of_b[shape_of_b.size() - 2]);
  }
  return adapted;
}

void add_adapters(const model::ModelPlan& plan, const Parameters& of_block,
                  plan::PartTraining& training) {
  const model::AdapterConfig& lora = plan.config().lora;
  for (const model::ParameterPlan& parameter : of_block) {
    if (parameter.name.ends_with(model::kAdapterA))
      training.adapted.push_back(adapted_layer(plan, parameter));
  }
  training.rank = lora.rank;
  training.drops_inputs = lora.dropout > 0;
  training.has_magnitudes = lora.dora;
}

// The parameters by part, as plan::ModelCounts counts them: with the embedding also what is behind
// the last block, but for the head's matrix.
std::vector<Parameters> parameters_by_part(const model::ModelPlan& plan) {
  const model::ModelConfig& model = plan.config();
  const std::vector<size_t> part_of = model::parts_of(plan);
  const auto head = static_cast<size_t>(model.layers) + 1;
  const int64_t rows = model.classes > 0 ? model.classes : model.vocab_size;
  std::vector<Parameters> parts(head + 1);
  for (size_t i = 0; i < part_of.size(); ++i) {
    const model::ParameterPlan& parameter = plan.parameters()[i];
    const std::vector<int64_t>& shape = parameter.layout.whole_shape();
    const bool is_head_matrix = shape.size() == 2 && shape[0] == rows && !model.has_tied_head();
    parts[part_of[i] == head && !is_head_matrix ? 0 : part_of[i]].push_back(parameter);
  }
  return parts;
}

}  // namespace

model::TrainedParts trained_parts_of(const train::RunConfig& config,
                                     const model::ModelConfig& model) {
  const model::ModelPlan plan = model::make_plan(model);
  return model::trained_parts(plan, train::frozen_parameters(config, plan.parameters()));
}

void set_training(const train::RunConfig& config, const model::ModelPlan& plan,
                  plan::Workload& work) {
  const model::ModelConfig& model = plan.config();
  const std::set<std::string> frozen = train::frozen_parameters(config, plan.parameters());
  if (frozen.empty() && !model.lora.is_on()) return;
  const model::TrainedParts trained = model::trained_parts(plan, frozen);
  const std::vector<Parameters> parts = parameters_by_part(plan);
  const PartCounter counter(config, frozen);

  work.embedding = counter.part(parts.front());
  work.embedding.has_backward = counter.is_trained(plan.parameters().front());
  work.head = counter.part(parts.back());
  work.head.has_backward = trained.head.has_backward;
  work.head.has_input_gradient = trained.head.input_gradients > 0;
  if (trained.head.forward > 0)
    work.head.products = trained.head.weight_gradients / trained.head.forward;
  auto blocks = std::make_shared<std::vector<plan::PartTraining>>();
  bool learns = trained.trains_input;
  for (size_t block = 0; block < trained.blocks.size(); ++block) {
    const Parameters& parameters = parts[block + 1];
    plan::PartTraining training = counter.part(parameters);
    training.has_backward = trained.blocks[block].has_backward;
    training.has_input_gradient = learns;
    const bool begins_with_norm = parameters.front().layout.whole_shape().size() == 1;
    training.keeps_input = learns || !begins_with_norm || counter.is_trained(parameters.front());
    add_adapters(plan, parameters, training);
    learns = training.has_backward;
    blocks->push_back(std::move(training));
  }
  work.blocks = std::move(blocks);
  work.trained_flops_per_token =
      trained.flops_per_sequence() / static_cast<double>(model.sequence_length);
}

}  // namespace trireme::tasks
