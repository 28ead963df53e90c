#include "trireme/plan/cost/layer_costs.h"

#include <algorithm>

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {
namespace {

void add_feed_forward(BlockWork& block, double rows, double width, double matrices, double D,
                      double count) {
  block.feed_forward.push_back({rows, (matrices - 1) * width, D, count, matrices - 1});
  block.feed_forward.push_back({rows, D, width, count});
  block.hidden_elements += (matrices + 1) * rows * width * count;
}

}  // namespace

double BlockWork::product_flops() const {
  double flops = 0;
  for (const Product& product : attention) flops += product.flops();
  for (const Product& product : feed_forward) flops += product.flops();
  return flops;
}

double tokens_of(const Workload& work) {
  return number(work.micro_batch * work.model.sequence_length) / number(work.axes.context);
}

double rows_of(const Workload& work) {
  return work.sequence_parallel ? tokens_of(work) / number(work.axes.tensor) : tokens_of(work);
}

BlockWork block_work(const Workload& work, bool sparse, double expert_skew) {
  const model::ModelConfig& config = work.model;
  const double t = number(work.axes.tensor), D = number(config.width), n = tokens_of(work);
  const ModelCounts& counts = work.counts();
  const double matrices = counts.feed_forward_matrices;
  const double out_width =
      number(config.heads *
             (config.attention.is_latent() ? config.attention.v_head_width : config.head_width()));
  BlockWork block;
  // Products with keys and values that ranks share are on each of them.
  const double copies = std::max(1.0, t / number(config.kv_heads));
  const double kv = 2 * number(config.kv_heads * config.head_width());
  const double in_width = counts.attention_matmul / D - out_width;
  const double in_columns =
      config.attention.is_latent() ? in_width / t : (in_width - kv) / t + kv * copies / t;
  const double num_in = config.attention.is_latent() ? 1 : 3;  // queries, keys and values
  block.attention = {{n, in_columns, D, 1, num_in}, {n, D, out_width / t}};
  block.core = {.queries = n,
                .keys = number(config.sequence_length),
                .heads = number(config.heads) / t,
                .width = number(config.core_width()),
                .is_causal = counts.is_causal};
  block.hidden_elements = 2 * n * (in_columns + out_width / t);
  if (sparse) {
    const model::ExpertConfig& experts = config.sparse;
    const double E = number(experts.experts), ep = number(work.axes.expert),
                 k = number(experts.experts_per_token), skew = ep > 1 ? expert_skew : 1;
    block.feed_forward.push_back({n, E, D});
    add_feed_forward(block, skew * n * k * ep / E, number(config.expert_width()) / t, matrices, D,
                     E / ep);
    if (experts.shared_experts > 0) {
      add_feed_forward(block, n, number(config.shared_width()) / t, matrices, D, 1);
    }
    block.expert_parameters = E / ep * counts.expert_parameters / t;
    block.parameters = (counts.sparse_parameters - E * counts.expert_parameters) / t;
    block.dispatched_rows = skew * n * k;
    block.wide_elements += 4 * n * k * D;
  } else {
    add_feed_forward(block, n, number(config.ffn_width) / t, matrices, D, 1);
    block.parameters = counts.dense_parameters / t;
  }
  // The norms, and two sums with the residual.
  block.wide_elements += (2 * work.kept_by_block.norms + 6) * rows_of(work) * D;
  block.num_kernels = (sparse ? 60 : 40) + (t > 1 ? 4 : 0);
  return block;
}

HeadWork head_work(const Workload& work) {
  const double n = tokens_of(work);
  const double columns = number(work.model.logits_per_token()) / number(work.axes.tensor);
  const double D = number(work.model.width);
  return {.logits = {n, columns, D},
          .dense = {rows_of(work), work.counts().head_dense / D, D},
          .loss_elements = 4 * n * columns};
}

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

// Whether attention keeps keys and values once per query head: if ranks share kv heads, and on a
// GPU if libtorch's kernel reads them.
bool copies_keys(const Workload& work) {
  const model::ModelConfig& model = work.model;
  if (work.axes.tensor > model.kv_heads) return true;
  const bool has_kernel =
      work.kept_by_block.copies_keys && work.axes.context == 1 && !work.separate_documents;
  // All query heads read a single kv head without a copy.
  return has_kernel && !work.recompute.attention_core && model.kv_heads > work.axes.tensor;
}

// The memory that the last stage keeps for its head: the norm's input or, if composed, two fp32
// tensors; before and after the activation of a dense layer; the loss's gradients; and a tied
// weight that came from the first stage.
double bytes_of_head(const Workload& work, double norm_input, double rows) {
  const double D = static_cast<double>(work.model.width);
  const double weight = number(work.model.logits_per_token()) / number(work.axes.tensor) * D;
  const bool comes_from_another_rank = work.counts().has_tied_head && work.axes.pipeline > 1 &&
                                       !parallel::ends_where_it_begins(work.schedule);
  const double of_dense = 2 * work.sizes.weight * work.counts().head_dense / D;
  return (norm_input * D + of_dense) * rows + work.sizes.wide * (D * rows + weight) +
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
  // q, k and v are the core's inputs.
  const bool stores = work.input_offload_rate > 0 && work.recompute.attention_core;
  if (latent.is_latent()) {
    // q, k, v and the core's output, and that without its padding; a norm's in and out.
    const int64_t cores = stores ? 1 : 4;
    return {static_cast<double>(model.heads * (cores * latent.core_width() + latent.v_head_width)),
            (1 + norm_input) * static_cast<double>(latent.q_lora_rank + latent.kv_lora_rank)};
  }
  const auto queries = static_cast<double>(model.heads * model.head_width());
  const auto all_keys = static_cast<double>(model.kv_heads * model.head_width());
  const double G = copies_keys(work) ? queries : all_keys;
  // q, its output, k and v; the norms' q and k. Ranks that share kv heads norm the keys of all,
  // where the norm is of all.
  const double of_queries = latent.qk_norm ? norm_input * queries : 0;
  const double of_keys = latent.qk_norm ? norm_input * all_keys : 0;
  const bool repeats_keys = latent.norms_all_heads() && work.axes.tensor > model.kv_heads;
  return {(stores ? queries : 2 * queries + 2 * G) + of_queries + (repeats_keys ? 0 : of_keys),
          repeats_keys ? of_keys : 0};
}

// Activations of composed attention: the softmax of the scores, its dropout, and the byte mask.
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
  const bool stores = work.input_offload_rate > 0;
  if (again.block) {
    kept.dense_block = kept.sparse_block = stores ? 0 : item * D * rows;
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
  // Recomputation starts from a norm's output and from the residual, which a composed norm does not
  // keep.
  const int branches = again.attention + again.feed_forward;
  const bool keeps_residuals = work.kept_by_block.composes_norms && !stores;
  const int residuals = keeps_residuals ? branches * (work.kept_by_block.branch_inputs - 1) : 0;
  const int outputs = stores ? 2 - branches : 2;
  // The norms' inputs, the outputs of those before a branch, and what is computed between them.
  const double inputs = work.kept_by_block.norms * norm_input;
  const double norms = (inputs + (outputs + residuals) * item) * D * rows +
                       (stores_scores ? bytes_of_scores(work) : 0);
  const double whole = attention.latents;
  kept.dense_block = norms + item * ((attention.heads + branch * F) / tensor + whole) * tokens;
  // What the gate of the shared experts multiplies.
  const double gated = model.sparse.shared_gate && !again.feed_forward ? item * D * rows : 0;
  kept.sparse_block =
      norms + gated + item * ((attention.heads + experts) / tensor + whole + copies) * tokens +
      item / tensor * number(work.expert_replicas) * work.counts().expert_parameters;
  return kept;
}

void add(parallel::LayerCost& sum, const parallel::LayerCost& one, double times = 1) {
  sum.time += times * one.time;
  sum.memory += times * one.memory;
  sum.activations += times * one.activations;
}

}  // namespace

InputBytes stored_input_bytes(const Workload& work) {
  if (work.input_offload_rate == 0) return {};
  const model::RecomputePlan& again = work.recompute;
  const double row = number(work.model.width) * rows_of(work) * work.sizes.weight;
  if (again.block) return {row, row};
  InputBytes bytes;
  const auto add = [&](double one, double times) {
    if (times > 0) bytes = {bytes.sum + times * one, std::max(bytes.largest, one)};
  };
  add(row, work.kept_by_block.branch_inputs * (again.attention + again.feed_forward));
  if (again.attention_core && !again.attention) {
    const model::ModelConfig& model = work.model;
    const double heads = number(model.heads * model.core_width());
    const double keys = copies_keys(work) ? heads : number(model.kv_heads * model.core_width());
    const double token = tokens_of(work) / number(work.axes.tensor) * work.sizes.weight;
    add(heads * token, 1);
    add((model.attention.is_latent() ? heads : keys) * token, 2);
  }
  return bytes;
}

KeptByStages::KeptByStages(const Workload& work, bool stores_scores, double expert_skew)
    : work_(work) {
  for (const model::BlockRun& run : work.recompute.runs(work.model.layers)) {
    kinds_.emplace_back(run.plan, layer_kinds(work.of_blocks(run), stores_scores, expert_skew));
  }
}

const LayerKinds& KeptByStages::kinds_of(const model::RecomputePlan& plan) const {
  const auto found = std::ranges::find(kinds_, plan, [](const auto& kinds) { return kinds.first; });
  TRIREME_ASSERT(found != kinds_.end(), "a stage with more blocks than the model");
  return found->second;
}

double KeptByStages::of(const model::ModelPart& stage) const {
  double sum = 0;
  for (const model::BlockRun& run : work_.recompute.runs(stage.num_layers)) {
    const model::ModelPart blocks{
        .first_layer = stage.first_layer + run.first,
        .num_layers = run.count,
        .embeds = stage.embeds && run.first == 0,
        .has_head = stage.has_head && run.first + run.count == stage.num_layers};
    sum += kinds_of(run.plan).of(work_.model, blocks).activations;
  }
  return sum;
}

int64_t num_sparse(const model::ModelConfig& model, const model::ModelPart& part) {
  if (model.sparse.experts == 0) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < part.num_layers; ++i) {
    count += model.sparse.is_sparse(part.first_layer + i) ? 1 : 0;
  }
  return count;
}

parallel::LayerCost LayerKinds::of(const model::ModelConfig& model,
                                   const model::ModelPart& part) const {
  const int64_t of_sparse = num_sparse(model, part);
  parallel::LayerCost sum{.time = 0};
  add(sum, dense, number(part.num_layers - of_sparse));
  add(sum, sparse, number(of_sparse));
  if (part.embeds) add(sum, embedding);
  if (part.has_head) add(sum, head);
  return sum;
}

LayerKinds layer_kinds(const Workload& work, bool stores_scores, double expert_skew) {
  const model::ModelConfig& model = work.model;
  const ModelCounts& counts = work.counts();
  const Kept kept = count_kept(work, stores_scores, expert_skew);
  const double per_parameter =
      state_bytes_per_parameter(work.sizes, work.zero, work.axes.sharing()) /
      static_cast<double>(work.axes.tensor);
  LayerKinds kinds{.dense = {.time = counts.dense_flops,
                             .memory = counts.dense_parameters * per_parameter,
                             .activations = kept.dense_block},
                   .embedding = {.time = 0, .memory = counts.embedding_parameters * per_parameter},
                   .head = {.time = 6 * (number(model.logits_per_token()) * number(model.width) +
                                         counts.head_dense),
                            .memory = counts.head_parameters * per_parameter,
                            .activations = kept.head}};
  kinds.sparse = model.sparse.experts > 0
                     ? parallel::LayerCost{.time = counts.sparse_flops,
                                           .memory = states_of_sparse_block(work),
                                           .activations = kept.sparse_block}
                     : kinds.dense;
  return kinds;
}

std::vector<parallel::LayerCost> layer_costs(const Workload& work, bool stores_scores,
                                             double expert_skew) {
  const LayerKinds kinds = layer_kinds(work, stores_scores, expert_skew);
  const auto is_sparse = [&](size_t layer) {
    return work.model.sparse.is_sparse(static_cast<int64_t>(layer));
  };
  std::vector<parallel::LayerCost> costs;
  for (size_t layer = 0; layer < static_cast<size_t>(work.model.layers); ++layer) {
    costs.push_back(is_sparse(layer) ? kinds.sparse : kinds.dense);
  }
  add(costs.front(), kinds.embedding);
  add(costs.back(), kinds.head);
  const std::vector<model::BlockRun> all = work.recompute.runs(work.model.layers);
  if (all.size() == 1) return costs;
  // Times do not depend on what is recomputed, and decide the stages.
  const std::vector<int64_t> places =
      parallel::places_in_stages(costs, work.schedule, work.axes.pipeline, work.stages_per_rank);
  for (const model::BlockRun& run : all) {
    const LayerKinds of_run = layer_kinds(work.of_blocks(run), stores_scores, expert_skew);
    for (size_t layer = 0; layer < costs.size(); ++layer) {
      if (places[layer] < run.first || places[layer] >= run.first + run.count) continue;
      costs[layer].activations += is_sparse(layer)
                                      ? of_run.sparse.activations - kinds.sparse.activations
                                      : of_run.dense.activations - kinds.dense.activations;
    }
  }
  return costs;
}

}  // namespace trireme::plan
