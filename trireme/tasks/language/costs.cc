#include "trireme/tasks/language/costs.h"

#include "trireme/model/family/family.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks::inline internal {
namespace {

// Parameters of the embedding (with the few of the last norm), and of the head.
struct Parameters {
  double embedding = 0;
  double head = 0;
};

Parameters count_parameters(const model::ModelConfig& config) {
  model::ModelConfig none = config;
  none.layers = 0;
  Parameters count;
  const double rest = static_cast<double>(num_parameters(none));
  const double matrix = static_cast<double>(config.vocab_size * config.width);
  count.head = config.has_tied_head() ? 0 : matrix;
  count.embedding = rest - count.head;
  return count;
}

int64_t expert_parameters(const model::ModelConfig& config) {
  return 3 * config.width * config.expert_width();
}

// The states of a sparse block on the rank that has most experts.
double states_of_sparse_block(const train::RunConfig& config, const model::ModelConfig& model) {
  const int64_t E = model.sparse.experts, of_expert = expert_parameters(model);
  const int64_t most = (E + config.parallel.expert - 1) / config.parallel.expert;
  const int64_t rest = block_parameters(model, /*sparse=*/true) - E * of_expert;
  const double bytes = train::state_bytes_per_parameter(config, model.width);
  const double bytes_of_experts = train::state_bytes_per_parameter(
      config, model.width, train::ranks_sharing_experts(config.parallel));
  return (static_cast<double>(rest) * bytes +
          static_cast<double>(most * of_expert) * bytes_of_experts) /
         static_cast<double>(config.parallel.tensor);
}

// Bytes that one microbatch's forward keeps.
struct Kept {
  double dense_block = 0;
  double sparse_block = 0;
  double head = 0;
};

// Whether attention keeps keys and values once per query head: if ranks share kv heads, and if
// libtorch's kernel reads them.
bool copies_keys(const train::RunConfig& config, const LanguageConfig& own,
                 const model::RecomputePlan& again) {
  const model::ModelConfig& model = own.model;
  if (config.parallel.tensor > model.kv_heads) return true;
  const bool has_kernel = config.parallel.context == 1 && !own.data.separate_documents;
  // All query heads read a single kv head without a copy.
  return has_kernel && !again.attention_core && model.kv_heads > config.parallel.tensor;
}

// The memory that the last stage keeps for its head: the norm's input or, if composed, two fp32
// tensors; the loss's gradients; and a tied weight that came from the first stage.
double bytes_of_head(const train::RunConfig& config, const model::ModelConfig& model,
                     double norm_input, double rows) {
  const double D = static_cast<double>(model.width);
  const double weight =
      static_cast<double>(model.vocab_size) / static_cast<double>(config.parallel.tensor) * D;
  const bool comes_from_another_rank = model.has_tied_head() && config.parallel.pipeline > 1 &&
                                       !parallel::ends_where_it_begins(config.parallel.schedule);
  return norm_input * D * rows + train::wide_itemsize(config) * (D * rows + weight) +
         (comes_from_another_rank ? train::itemsize(config) * weight : 0);
}

// The numbers that attention keeps for a token: of all heads, which the tensor axis divides, and of
// the latents, which it does not.
struct AttentionKept {
  double heads = 0;
  double latents = 0;
};
// norm_input: how many numbers a norm keeps for each of its input.
AttentionKept attention_kept(const train::RunConfig& config, const LanguageConfig& own,
                             const model::RecomputePlan& again, double norm_input) {
  const model::ModelConfig& model = own.model;
  const model::AttentionConfig& latent = model.attention;
  if (again.attention) return {};
  if (latent.is_latent()) {
    // q, k, v and the core's output, and that without its padding; a norm's in and out.
    return {static_cast<double>(model.heads * (4 * latent.core_width() + latent.v_head_width)),
            (1 + norm_input) * static_cast<double>(latent.q_lora_rank + latent.kv_lora_rank)};
  }
  const auto queries = static_cast<double>(model.heads * model.head_width());
  const auto all_keys = static_cast<double>(model.kv_heads * model.head_width());
  const double G = copies_keys(config, own, again) ? queries : all_keys;
  // q, its output, k and v; the norms' q and k.
  return {2 * queries + 2 * G + (latent.qk_norm ? norm_input * (queries + all_keys) : 0), 0};
}

Kept count_kept(const train::RunConfig& config, const LanguageConfig& own) {
  const model::ModelConfig& model = own.model;
  const double item = train::itemsize(config);
  const model::KeptByBlock of_family = model::family_of(model).kept_by_block(config.dtype());
  const double tensor = static_cast<double>(config.parallel.tensor);
  const double tokens = static_cast<double>(config.train.micro_batch * model.sequence_length) /
                        static_cast<double>(config.parallel.context);
  // Between the layers each tensor rank has all rows, or only its own.
  const double rows = config.parallel.sequence_parallel ? tokens / tensor : tokens;
  const double D = static_cast<double>(model.width), F = static_cast<double>(model.ffn_width);
  const model::RecomputePlan again =
      model::recompute_plan(config.train.recompute, config.train.recompute_modules);
  const double norm_input = of_family.composes_norms ? 2 * 4 : item;
  Kept kept;
  kept.head = bytes_of_head(config, model, norm_input, rows);
  if (again.block) {
    kept.dense_block = kept.sparse_block = item * D * rows;
    return kept;
  }
  const AttentionKept attention = attention_kept(config, own, again, norm_input / item);
  const double branch = again.feed_forward ? 0 : of_family.feed_forward;
  // Each token's copies for its experts, their hidden layers, and their results.
  const auto k = static_cast<double>(model.sparse.experts_per_token);
  const auto hidden = static_cast<double>(model.expert_width()),
             shared = static_cast<double>(model.shared_width());
  const bool keeps_rows = config.parallel.expert_chunk == 0 && !again.feed_forward;
  const double experts = branch * (keeps_rows ? k * hidden + shared : shared);
  const double copies = keeps_rows ? 2 * k * D : 0;
  // Recomputation starts from the residual, which a composed norm does not keep.
  const int residuals = of_family.composes_norms ? again.attention + again.feed_forward : 0;
  // Two norms' in and out, and what is computed between them.
  const double norms = (2 * (norm_input + item) + residuals * item) * D * rows;
  const double whole = attention.latents;
  kept.dense_block = norms + item * ((attention.heads + branch * F) / tensor + whole) * tokens;
  kept.sparse_block =
      norms + item * ((attention.heads + experts) / tensor + whole + copies) * tokens +
      item / tensor *
          static_cast<double>(config.parallel.expert_replicas * expert_parameters(model));
  return kept;
}

}  // namespace

std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own) {
  const model::ModelConfig& model = own.model;
  const Parameters parameters = count_parameters(model);
  const Kept kept = count_kept(config, own);
  const double per_parameter = train::state_bytes_per_parameter(config, model.width) /
                               static_cast<double>(config.parallel.tensor);
  const auto cost_of = [&](bool sparse) {
    model::ModelConfig one = model;
    one.layers = 1;
    one.vocab_size = 0;
    one.sparse.dense_layers = sparse ? 0 : 1;
    one.sparse.expert_interval = 1;
    return parallel::LayerCost{
        .time = model::flops_per_token(one),
        .memory = sparse ? states_of_sparse_block(config, model)
                         : static_cast<double>(block_parameters(model, false)) * per_parameter,
        .activations = sparse ? kept.sparse_block : kept.dense_block};
  };
  const parallel::LayerCost dense = cost_of(false);
  const parallel::LayerCost sparse = model.sparse.experts > 0 ? cost_of(true) : dense;
  std::vector<parallel::LayerCost> costs;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    costs.push_back(model.sparse.is_sparse(layer) ? sparse : dense);
  }
  costs.front().memory += parameters.embedding * per_parameter;
  costs.back().memory += parameters.head * per_parameter;
  costs.back().activations += kept.head;
  costs.back().time += 6 * static_cast<double>(model.vocab_size) * static_cast<double>(model.width);
  return costs;
}

}  // namespace trireme::tasks::inline internal
