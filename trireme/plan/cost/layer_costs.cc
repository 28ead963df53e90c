#include "trireme/plan/cost/layer_costs.h"

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/plan/cost/products.h"
#include "trireme/plan/cost/state_bytes.h"

namespace trireme::plan {
namespace {

// The states of a sparse block on the rank that has most experts.
double states_of_sparse_block(const Workload& work) {
  const ModelCounts& counts = work.counts();
  const int64_t E = work.model.sparse.experts;
  const int64_t most = (E + work.axes.expert - 1) / work.axes.expert;
  const double rest = counts.sparse_parameters - number(E) * counts.expert_parameters;
  const double bytes = state_bytes_per_parameter(work.sizes, work.zero, work.axes.sharing());
  const double bytes_of_experts =
      state_bytes_per_parameter(work.sizes, work.zero, work.axes.sharing_experts());
  return (rest * bytes + number(most) * counts.expert_parameters * bytes_of_experts) /
         number(work.axes.tensor);
}

// Bytes that one microbatch's forward keeps.
struct Kept {
  double dense_block = 0;
  double sparse_block = 0;
  double head = 0;
};

// Whether attention keeps keys and values once per query head: if ranks share kv heads, and if
// libtorch's kernel reads them.
bool copies_keys(const Workload& work) {
  const model::ModelConfig& model = work.model;
  if (work.axes.tensor > model.kv_heads) return true;
  const bool has_kernel = work.axes.context == 1 && !work.separate_documents;
  // All query heads read a single kv head without a copy.
  return has_kernel && !work.recompute.attention_core && model.kv_heads > work.axes.tensor;
}

// The memory that the last stage keeps for its head: the norm's input or, if composed, two fp32
// tensors; the loss's gradients; and a tied weight that came from the first stage.
double bytes_of_head(const Workload& work, double norm_input, double rows) {
  const double D = static_cast<double>(work.model.width);
  const double weight =
      static_cast<double>(work.model.vocab_size) / static_cast<double>(work.axes.tensor) * D;
  const bool comes_from_another_rank = work.counts().has_tied_head && work.axes.pipeline > 1 &&
                                       !parallel::ends_where_it_begins(work.schedule);
  return norm_input * D * rows + work.sizes.wide * (D * rows + weight) +
         (comes_from_another_rank ? work.sizes.weight * weight : 0);
}

// The numbers that attention keeps for a token: of all heads, which the tensor axis divides, and of
// the latents, which it does not.
struct AttentionKept {
  double heads = 0;
  double latents = 0;
};
// norm_input: how many numbers a norm keeps for each of its input.
AttentionKept attention_kept(const Workload& work, double norm_input) {
  const model::ModelConfig& model = work.model;
  const model::AttentionConfig& latent = model.attention;
  if (work.recompute.attention) return {};
  if (latent.is_latent()) {
    // q, k, v and the core's output, and that without its padding; a norm's in and out.
    return {static_cast<double>(model.heads * (4 * latent.core_width() + latent.v_head_width)),
            (1 + norm_input) * static_cast<double>(latent.q_lora_rank + latent.kv_lora_rank)};
  }
  const auto queries = static_cast<double>(model.heads * model.head_width());
  const auto all_keys = static_cast<double>(model.kv_heads * model.head_width());
  const double G = copies_keys(work) ? queries : all_keys;
  // q, its output, k and v; the norms' q and k.
  return {2 * queries + 2 * G + (latent.qk_norm ? norm_input * (queries + all_keys) : 0), 0};
}

// Of a composed attention: the scores' softmax, what dropout leaves of it, and its mask of bytes.
double bytes_of_scores(const Workload& work) {
  const model::RecomputePlan& again = work.recompute;
  if (again.block || again.attention || again.attention_core) return 0;
  return block_work(work, false).core.scores() * (2 * work.sizes.weight + 1);
}

Kept count_kept(const Workload& work, bool stores_scores, double expert_skew) {
  const model::ModelConfig& model = work.model;
  const double item = work.sizes.weight;
  const double tensor = static_cast<double>(work.axes.tensor);
  const double tokens = tokens_of(work), rows = rows_of(work);
  const double D = static_cast<double>(model.width), F = static_cast<double>(model.ffn_width);
  const model::RecomputePlan& again = work.recompute;
  const double norm_input = work.kept_by_block.composes_norms ? 2 * 4 : item;
  Kept kept;
  kept.head = bytes_of_head(work, norm_input, rows);
  if (again.block) {
    kept.dense_block = kept.sparse_block = item * D * rows;
    return kept;
  }
  const AttentionKept attention = attention_kept(work, norm_input / item);
  const double branch = again.feed_forward ? 0 : work.kept_by_block.feed_forward;
  // Each token's copies for its experts, their hidden layers, and their results.
  const auto k = static_cast<double>(model.sparse.experts_per_token);
  const auto hidden = static_cast<double>(model.expert_width()),
             shared = static_cast<double>(model.shared_width());
  const bool keeps_rows = work.expert_chunk == 0 && !again.feed_forward;
  const double skew = work.axes.expert > 1 ? expert_skew : 1;
  const double experts = branch * (keeps_rows ? skew * k * hidden + shared : shared);
  const double copies = keeps_rows ? (1 + skew) * k * D : 0;  // what is sent, and what arrives
  // Recomputation starts from the residual, which a composed norm does not keep.
  const int residuals =
      work.kept_by_block.composes_norms ? again.attention + again.feed_forward : 0;
  // Two norms' in and out, and what is computed between them.
  const double norms = (2 * (norm_input + item) + residuals * item) * D * rows +
                       (stores_scores ? bytes_of_scores(work) : 0);
  const double whole = attention.latents;
  kept.dense_block = norms + item * ((attention.heads + branch * F) / tensor + whole) * tokens;
  kept.sparse_block =
      norms + item * ((attention.heads + experts) / tensor + whole + copies) * tokens +
      item / tensor * number(work.expert_replicas) * work.counts().expert_parameters;
  return kept;
}

}  // namespace

std::vector<parallel::LayerCost> layer_costs(const Workload& work, bool stores_scores,
                                             double expert_skew) {
  const model::ModelConfig& model = work.model;
  const ModelCounts& counts = work.counts();
  const Kept kept = count_kept(work, stores_scores, expert_skew);
  const double per_parameter =
      state_bytes_per_parameter(work.sizes, work.zero, work.axes.sharing()) /
      static_cast<double>(work.axes.tensor);
  const parallel::LayerCost dense{.time = counts.dense_flops,
                                  .memory = counts.dense_parameters * per_parameter,
                                  .activations = kept.dense_block};
  const parallel::LayerCost sparse =
      model.sparse.experts > 0 ? parallel::LayerCost{.time = counts.sparse_flops,
                                                     .memory = states_of_sparse_block(work),
                                                     .activations = kept.sparse_block}
                               : dense;
  std::vector<parallel::LayerCost> costs;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    costs.push_back(model.sparse.is_sparse(layer) ? sparse : dense);
  }
  costs.front().memory += counts.embedding_parameters * per_parameter;
  costs.back().memory += counts.head_parameters * per_parameter;
  costs.back().activations += kept.head;
  costs.back().time += 6 * static_cast<double>(model.vocab_size) * static_cast<double>(model.width);
  return costs;
}

}  // namespace trireme::plan
