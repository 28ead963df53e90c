#include "trireme/model/family/plan.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::model {

std::vector<at::Tensor> TokenBatch::tracked() const {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : {memory, distance_bias_NR}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return tensors;
}

TokenBatch TokenBatch::with_tracked(std::span<const at::Tensor> tensors) const {
  TokenBatch batch = *this;
  size_t next = 0;
  for (at::Tensor* const tensor : {&batch.memory, &batch.distance_bias_NR}) {
    if (tensor->defined()) *tensor = tensors[next++];
  }
  return batch;
}

namespace {

std::vector<int64_t> times(std::span<const int64_t> cuts, int64_t factor) {
  std::vector<int64_t> result;
  for (const int64_t cut : cuts) result.push_back(cut * factor);
  return result;
}

mesh::Range part_of(const std::vector<int64_t>& cuts, int rank) {
  const auto at = static_cast<size_t>(rank);
  return {cuts[at], cuts[at + 1] - cuts[at]};
}

void check_enough(int ranks, const char* key, int64_t value) {
  TRIREME_CHECK(ranks == 1 || ranks <= value, "parallel.tensor is ", ranks, " and model.", key,
                " is ", value, ", so that a rank would have none; set parallel.tensor to at most ",
                value);
}

constexpr std::string_view kWeight = ".weight";

// The linear layer in a block whose weight this is; "" for every other parameter. Blocks are
// numbered; routers choose experts, and their like weights them: both stay as they are.
std::string adapted_layer(const ParameterPlan& parameter) {
  const std::string& name = parameter.name;
  if (!name.ends_with(kWeight) || parameter.layout.shape().size() != 2) return "";
  std::string layer = name.substr(0, name.size() - kWeight.size());
  if (layer.ends_with(".gate") || layer.ends_with(".shared_expert_gate") ||
      layer.find(concat(".", kVisionTower, ".")) != layer.npos)
    return "";
  const std::vector<std::string> parts = split_list(layer, '.');
  const auto is_number = [](const std::string& part) {
    return std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  };
  return std::ranges::any_of(parts, is_number) ? layer : "";
}

// The module of all experts' stacks that a parameter is in, with a dot at its end; "": in none.
std::string experts_of(const std::string& name) {
  const size_t at = name.rfind(kExperts);
  return at == name.npos ? "" : name.substr(0, at + kExperts.size());
}

// The layout of a factor of a weight, which has `rank` in place of the weight's dimension `dim`.
mesh::Layout factor_layout(const mesh::Layout& weight, int dim, int64_t rank) {
  std::vector<int64_t> shape = weight.shape();
  shape.at(static_cast<size_t>(dim)) = rank;
  std::vector<mesh::Placement> placements = weight.placements();
  for (mesh::Placement& placement : placements) {
    if (placement.kind == mesh::Placement::Kind::kSharded && placement.dim == dim)
      placement = mesh::Placement::replicated();
  }
  return {std::move(shape), weight.axes(), std::move(placements)};
}

// The patterns of lora.targets that name stacks of experts' weights, or those that do not.
std::vector<std::string> targets_of(const AdapterConfig& lora, bool of_stacks) {
  std::vector<std::string> patterns = split_list(lora.targets, ',');
  std::erase_if(patterns, [&](const std::string& pattern) {
    return (pattern.find(kExperts) != pattern.npos) != of_stacks;
  });
  return patterns;
}

// Throws: ConfigError when one of the patterns of `key` matches none of the names
void check_matches(const char* key, const std::vector<std::string>& patterns, const char* what,
                   const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const std::string& name) { return matches(pattern, name); };
    TRIREME_CHECK(std::ranges::any_of(names, fits), key, " has \"", pattern,
                  "\", which matches no ", what, "; expected a pattern of names such as \"",
                  names.empty() ? "" : names.front(), "\" or \"", names.empty() ? "" : names.back(),
                  "\"");
  }
}

}  // namespace

TensorCuts::TensorCuts(const ModelConfig& config, int ranks) : ranks(ranks) {
  check_enough(ranks, "heads", config.heads);
  check_enough(ranks, "ffn_width", config.ffn_width);
  if (config.vocab_size > 0) check_enough(ranks, "vocab_size", config.vocab_size);
  if (ranks <= config.kv_heads) {
    kv_heads = parallel::even_cuts(config.kv_heads, ranks);
    heads = times(kv_heads, config.heads / config.kv_heads);
  } else {
    heads = parallel::even_cuts(config.heads, ranks);
  }
  ffn = parallel::even_cuts(config.ffn_width, ranks);
  if (config.sparse.experts > 0) {
    if (ranks > config.expert_width()) {
      check_enough(ranks, config.sparse.expert_width > 0 ? "expert_width" : "ffn_width",
                   config.expert_width());
    }
    expert = parallel::even_cuts(config.expert_width(), ranks);
    shared = parallel::even_cuts(config.shared_width(), ranks);
  }
  vocab = parallel::even_cuts(config.vocab_size, ranks);
}

mesh::Range TensorCuts::heads_of(int rank) const { return part_of(heads, rank); }

mesh::Range TensorCuts::kv_heads_of(int rank, const ModelConfig& config) const {
  if (!kv_heads.empty()) return part_of(kv_heads, rank);
  const int64_t group = config.heads / config.kv_heads;
  const mesh::Range own = heads_of(rank);
  const int64_t first = own.offset / group;
  return {first, (own.offset + own.size - 1) / group - first + 1};
}

mesh::Range TensorCuts::ffn_of(int rank) const { return part_of(ffn, rank); }
mesh::Range TensorCuts::expert_of(int rank) const { return part_of(expert, rank); }
mesh::Range TensorCuts::shared_of(int rank) const { return part_of(shared, rank); }
mesh::Range TensorCuts::vocab_of(int rank) const { return part_of(vocab, rank); }

void ModelPlan::add_whole(std::string name, std::vector<int64_t> shape) {
  parameters_.push_back(
      {std::move(name), mesh::Layout(std::move(shape), {{"tensor", cuts_.ranks}})});
}

void ModelPlan::add_split(std::string name, std::vector<int64_t> shape, int dim,
                          std::span<const int64_t> cuts, int64_t width) {
  if (cuts.empty()) return add_whole(std::move(name), std::move(shape));
  parameters_.push_back(
      {std::move(name), mesh::Layout(std::move(shape), {{"tensor", cuts_.ranks}},
                                     {mesh::Placement::sharded(dim, times(cuts, width))})});
}

void ModelPlan::add_experts(std::string name, std::vector<int64_t> shape, int dim,
                            std::span<const int64_t> cuts) {
  const mesh::Placement of_tensor =
      cuts.empty() ? mesh::Placement::replicated() : mesh::Placement::sharded(dim, times(cuts, 1));
  parameters_.push_back(
      {std::move(name),
       mesh::Layout(std::move(shape), {{"expert", sizes_.expert}, {"tensor", sizes_.tensor}},
                    {mesh::Placement::sharded(0), of_tensor})});
}

void ModelPlan::freeze(std::string_view prefix) {
  for (ParameterPlan& parameter : parameters_) {
    if (parameter.name.starts_with(prefix)) parameter.is_trained = false;
  }
}

// In place of the weight.
void ModelPlan::add_codes(const ParameterPlan& weight, std::vector<ParameterPlan>& all) const {
  const WeightFormat format = config_.lora.base;
  const std::string layer = adapted_layer(weight);
  const mesh::Layout& layout = weight.layout;
  const std::vector<int64_t>& shape = layout.shape();
  const auto add = [&](std::string_view name, int64_t numbers, double weights_per_element) {
    std::vector<mesh::Placement> placements = layout.placements();
    for (mesh::Placement& placement : placements) {
      if (placement.kind != mesh::Placement::Kind::kSharded || placement.dim != 1) continue;
      for (int64_t& cut : placement.cuts) {
        TRIREME_CHECK(cut % kCodesPerScale == 0, "lora.base is ", name_of(kWeightFormats, format),
                      " and parallel.tensor ", cuts_.ranks, ", between whose ranks ", weight.name,
                      " is cut at column ", cut, ", among the ", kCodesPerScale,
                      " numbers that share a scale; lower parallel.tensor, or set lora.base to "
                      "\"bf16\"");
        cut /= numbers;
      }
    }
    all.push_back({.name = concat(layer, name),
                   .layout = {{shape[0], shape[1] / numbers}, layout.axes(), placements},
                   .is_trained = false,
                   .format = format,
                   .weights_per_element = weights_per_element});
  };
  TRIREME_CHECK(shape[1] % kCodesPerScale == 0, "lora.base is ", name_of(kWeightFormats, format),
                ", and ", weight.name, " has ", shape[1], " columns; expected a multiple of the ",
                kCodesPerScale, " numbers that share a scale; set lora.base to \"bf16\"");
  add(kWeightCodes, numbers_per_code(format), static_cast<double>(numbers_per_code(format)));
  add(kWeightScales, kCodesPerScale, 0);
}

void ModelPlan::check_adapters() const {
  const AdapterConfig& lora = config_.lora;
  std::vector<std::string> layers, names, stacks;
  for (const ParameterPlan& parameter : parameters_) {
    names.push_back(parameter.name);
    if (const std::string layer = adapted_layer(parameter); !layer.empty()) layers.push_back(layer);
    if (const std::string stack = adapted_stack(parameter.name); !stack.empty())
      stacks.push_back(stack);
  }
  const std::vector<std::string> of_stacks = targets_of(lora, /*of_stacks=*/true);
  check_matches("lora.targets", targets_of(lora, /*of_stacks=*/false), "linear layer of a block",
                layers);
  TRIREME_CHECK(of_stacks.empty() || !stacks.empty(), "lora.targets has \"", of_stacks.front(),
                "\", and the model has no stacked weights of experts; leave it out");
  check_matches("lora.targets", of_stacks, "stacked weights of experts", stacks);
  check_matches("lora.also_train", split_list(lora.also_train, ','), "parameter", names);
  TRIREME_CHECK(!split_list(lora.targets, ',').empty(),
                "lora.targets is empty; expected the patterns of the layers that get an adapter, "
                "such as \"*\"");
  TRIREME_CHECK(!lora.dora || lora.dropout == 0, "lora.dropout is ", lora.dropout,
                " and lora.dora true, whose magnitudes scale the layer and its adapter together; "
                "set lora.dropout to 0");
  TRIREME_CHECK(of_stacks.empty() || (!lora.dora && lora.dropout == 0), "lora.targets has \"",
                of_stacks.front(), "\", lora.dropout is ", lora.dropout, " and lora.dora ",
                lora.dora ? "true" : "false",
                "; adapters of stacked experts have neither dropout nor magnitudes, here and in "
                "peft: set them to 0 and false, or leave the stacks out");
}

void ModelPlan::add_adapters() {
  check_adapters();
  const AdapterConfig& lora = config_.lora;
  const std::string trained =
      concat(lora.also_train, ",", family_of(config_).trained_beside_adapters(config_));
  std::vector<ParameterPlan> all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    ParameterPlan own = parameters_[i];
    own.is_trained = own.is_trained && matches_any(trained, own.name);
    if (!own.is_trained && !adapted_layer(own).empty()) own.format = lora.base;
    if (has_scales(own.format)) {
      add_codes(own, all);
    } else {
      all.push_back(own);
    }
    add_layer_adapter(i, all);
    add_stack_adapters(i, all);
  }
  parameters_ = std::move(all);
}

// A module's own parameters come before those of the modules in it, so a bias comes first.
void ModelPlan::add_layer_adapter(size_t i, std::vector<ParameterPlan>& all) const {
  const AdapterConfig& lora = config_.lora;
  const std::string& own = parameters_[i].name;
  const bool is_bias = own.ends_with(".bias");
  const ParameterPlan& weight = parameters_[is_bias && i > 0 ? i - 1 : i];
  const std::string layer = adapted_layer(weight);
  if (layer.empty() || !matches_any(lora.targets, layer)) return;
  if (is_bias && own != layer + ".bias") return;
  if (!is_bias && i + 1 < parameters_.size() && parameters_[i + 1].name == layer + ".bias") return;
  const mesh::Layout& layout = weight.layout;
  if (lora.dora) {
    const mesh::Placement placement = layout.placements().front();
    const bool is_split = placement.kind == mesh::Placement::Kind::kSharded && placement.dim == 0;
    all.push_back({layer + kAdapterMagnitude,
                   is_split ? mesh::Layout({layout.shape()[0]}, layout.axes(), {placement})
                            : mesh::Layout({layout.shape()[0]}, layout.axes())});
  }
  all.push_back({layer + kAdapterA, factor_layout(layout, 0, lora.rank)});
  all.push_back({layer + kAdapterB, factor_layout(layout, 1, lora.rank)});
}

// Likewise, the last of a module's own parameters is followed by all its adapters.
void ModelPlan::add_stack_adapters(size_t i, std::vector<ParameterPlan>& all) const {
  const std::string experts = experts_of(parameters_[i].name);
  const auto is_in = [&](size_t at) { return experts_of(parameters_[at].name) == experts; };
  if (experts.empty() || (i + 1 < parameters_.size() && is_in(i + 1))) return;
  size_t first = i;
  while (first > 0 && is_in(first - 1)) --first;
  std::string last_stack;
  for (size_t at = first; at <= i; ++at) {
    const ParameterPlan& own = parameters_[at];
    const std::string stack = adapted_stack(own.name);
    const auto names_it = [&](const std::string& pattern) { return matches(pattern, stack); };
    if (stack.empty() || std::ranges::none_of(targets_of(config_.lora, true), names_it)) continue;
    if (stack != last_stack)
      all.push_back({stack + kAdapterA, factor_layout(own.layout, 1, config_.lora.rank)});
    all.push_back({own.name + kAdapterB, factor_layout(own.layout, 2, config_.lora.rank)});
    last_stack = stack;
  }
}

const mesh::Layout& ModelPlan::layout(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &ParameterPlan::name);
  TRIREME_ASSERT(found != parameters_.end(), "the plan has no parameter \"", name, "\"");
  return found->layout;
}

ModelPlan make_plan(const ModelConfig& config, AxisSizes sizes) {
  ModelPlan plan = family_of(config).plan(config, sizes);
  if (config.lora.is_on()) plan.add_adapters();
  return plan;
}

void check_axes(const ModelConfig& model, const TransformerAxes& axes, std::string_view tokens) {
  const TensorCuts cuts(model, static_cast<int>(axes.tensor));
  for (int rank = 0; rank < cuts.ranks; ++rank) {
    const int64_t heads = cuts.heads_of(rank).size;
    try {
      parallel::check_context(axes.context_form, heads, static_cast<int>(axes.context));
    } catch (const ConfigError& error) {
      throw ConfigError(concat("parallel.context is ", axes.context, " and a tensor rank has ",
                               heads, " heads: ", error.what(),
                               ": lower it, or set parallel.context_form = \"ring\""));
    }
  }
  TRIREME_CHECK(axes.context <= model.sequence_length, "parallel.context is ", axes.context,
                " and ", tokens, " ", model.sequence_length,
                ", so that a rank would have no token; lower parallel.context");
}

}  // namespace trireme::model
