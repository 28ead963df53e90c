#include "trireme/model/family/plan.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::model {
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
  parameters_.push_back(
      {std::move(name),
       mesh::Layout(std::move(shape), {{"expert", sizes_.expert}, {"tensor", sizes_.tensor}},
                    {mesh::Placement::sharded(0), mesh::Placement::sharded(dim, times(cuts, 1))})});
}

const mesh::Layout& ModelPlan::layout(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &ParameterPlan::name);
  TRIREME_ASSERT(found != parameters_.end(), "the plan has no parameter \"", name, "\"");
  return found->layout;
}

ModelPlan make_plan(const ModelConfig& config, AxisSizes sizes) {
  return family_of(config).plan(config, sizes);
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
