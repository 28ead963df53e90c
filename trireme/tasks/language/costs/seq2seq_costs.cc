#include "trireme/tasks/language/costs/seq2seq_costs.h"

#include <charconv>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/trained_parts.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/tasks/language/costs/part_training.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {
namespace {

// The block that a parameter is in or counts with.
int64_t block_of(std::string_view name, const model::ModelConfig& config) {
  const int64_t L = config.layers;
  const bool is_encoder = name.starts_with("encoder.");
  if (name == "lm_head.weight") return config.num_blocks() - 1;
  if (!is_encoder && !name.starts_with("decoder.")) return 0;
  const int64_t first = is_encoder ? 0 : L;
  if (name.ends_with("final_layer_norm.weight"))
    return first + (is_encoder ? L : config.decoder_layers()) - 1;
  constexpr std::string_view kBlock = ".block.";
  const size_t at = name.find(kBlock);
  if (at == name.npos) return first;
  int64_t number = 0;
  std::from_chars(name.data() + at + kBlock.size(), name.data() + name.size(), number);
  return first + number;
}

// Of a rank, for a microbatch: T tokens of the encoder, U of the decoder, and the rows of each
// between the layers.
struct Tokens {
  double T = 0, U = 0, rows_T = 0, rows_U = 0;
};

// Numbers that a block's adapters keep: the products of their inputs with A.
struct AdaptersKept {
  double attention = 0, feed_forward = 0;

  void add(std::string_view adapter, double numbers) {
    (adapter.find("Attention") == adapter.npos ? feed_forward : attention) += numbers;
  }
  double of(const model::RecomputePlan& again) const {
    if (again.block) return 0;
    return (again.attention ? 0 : attention) + (again.feed_forward ? 0 : feed_forward);
  }
};

// A block keeps the inputs and outputs of its norms; of attention q, k, v and its output; and what
// its feed-forward reads and writes. Attention's scores are computed again in backward.
double kept_bytes(const train::RunConfig& run, const model::ModelConfig& config,
                  const Tokens& tokens, bool is_decoder, const model::RecomputePlan& again) {
  const double item = train::itemsize(run);
  const auto D = static_cast<double>(config.width), F = static_cast<double>(config.ffn_width);
  const auto heads = static_cast<double>(config.heads * config.head_width());
  const auto tensor = static_cast<double>(run.parallel.tensor);
  const double n = is_decoder ? tokens.U : tokens.T;
  const double rows = is_decoder ? tokens.rows_U : tokens.rows_T;
  if (again.block) return item * D * rows;
  const bool is_gated = config.seq2seq.feed_forward == model::FeedForwardForm::kGatedGelu;
  const double attention = again.attention ? 0 : 4 * heads * n;
  const double across = again.attention ? 0 : 2 * heads * (n + tokens.T);
  const double hidden = again.feed_forward ? 0 : (is_gated ? 4 : 1) * F * n;
  const double branches = is_decoder ? 3 : 2;
  return item *
         (branches * 2 * D * rows + (attention + (is_decoder ? across : 0) + hidden) / tensor);
}

}  // namespace

std::vector<parallel::LayerCost> seq2seq_costs(const train::RunConfig& config,
                                               const model::ModelConfig& model) {
  const train::ParallelConfig& parallel = config.parallel;
  const int64_t L = model.layers;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double T = number(model.sequence_length), U = number(model.seq2seq.target_length);
  const plan::StateBytes states =
      plan::state_bytes_by_kind(train::number_sizes(config, model.width), parallel.zero,
                                train::plan_axes(parallel).sharing());
  const model::TrainedParts parts = trained_parts_of(config, model);
  std::vector<parallel::LayerCost> costs(static_cast<size_t>(model.num_blocks()), {.time = 0});
  const model::ModelPlan plan =
      model::make_plan(model, {.tensor = static_cast<int>(parallel.tensor)});
  const std::set<std::string> frozen = train::frozen_parameters(config, plan.parameters());
  const double micro_batch = number(config.largest_micro_batch());
  const double share = parallel.sequence_parallel ? number(parallel.tensor) : 1;
  Tokens tokens{.T = micro_batch * T / number(parallel.context),
                .U = micro_batch * U / number(parallel.context)};
  tokens.rows_T = tokens.T / share;
  tokens.rows_U = tokens.U / share;
  std::vector<AdaptersKept> adapters(costs.size());
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const std::string& name = parameter.name;
    const auto block = static_cast<size_t>(block_of(name, model));
    const double weights = train::kept_bytes(config, parameter) / train::itemsize(config);
    const double trained = frozen.contains(name) ? 0 : weights;
    costs[block].memory +=
        (weights * states.weights + trained * (states.total() - states.weights)) /
        number(parallel.tensor);
    if (!name.ends_with(model::kAdapterA)) continue;
    const bool reads_memory = name.find(".EncDecAttention.k.") != name.npos ||
                              name.find(".EncDecAttention.v.") != name.npos;
    const bool is_of_encoder = block < static_cast<size_t>(L) || reads_memory;
    adapters[block].add(name, number(model.lora.rank) * (is_of_encoder ? tokens.T : tokens.U));
  }
  const model::RecomputePlan recompute = config.recompute_plan();
  const auto kept_by = [&](size_t block, const model::RecomputePlan& again) -> double {
    if (!parts.blocks[block].has_backward) return 0;
    return kept_bytes(config, model, tokens, static_cast<int64_t>(block) >= L, again) +
           train::itemsize(config) * adapters[block].of(again);
  };
  for (size_t block = 0; block < costs.size(); ++block) {
    costs[block].time += parts.blocks[block].flops();
    costs[block].activations = kept_by(block, recompute.of_block(0));
  }
  // The norm between the halves, and its output, which all blocks of the decoder read.
  costs[static_cast<size_t>(L - 1)].activations +=
      2 * train::itemsize(config) * number(model.width) * tokens.rows_T;
  // The norm's input and the loss's gradients, in fp32 at least.
  const double D = number(model.width);
  const double vocabulary = number(model.vocab_size) / number(parallel.tensor);
  costs.back().time += parts.head.flops();
  costs.back().activations +=
      train::itemsize(config) * D * tokens.rows_U +
      train::wide_itemsize(config) *
          (D * tokens.rows_U + (parts.head.weight_gradients > 0 ? vocabulary * D : 0));
  if (recompute.num_blocks >= model.num_blocks()) return costs;
  const std::vector<int64_t> places = parallel::places_in_stages(
      costs, parallel.schedule, parallel.pipeline, parallel.stages_per_rank);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (places[i] < recompute.num_blocks) continue;
    costs[i].activations += kept_by(i, {}) - kept_by(i, recompute.of_block(0));
  }
  return costs;
}

}  // namespace trireme::tasks
