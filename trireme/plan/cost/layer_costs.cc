#include "trireme/plan/cost/layer_costs.h"

#include <algorithm>

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {
namespace {

// Bytes per parameter of a part, without adapters, of which these shares are trained and kept.
double state_bytes(const Workload& work, double trained, double kept, int64_t ranks) {
  const StateBytes bytes = state_bytes_by_kind(work.sizes.of_trained(), work.zero, ranks);
  return kept * bytes.weights + trained * (bytes.total() - bytes.weights);
}

// The states of a sparse block on the rank that has most experts.
double states_of_sparse_block(const Workload& work) {
  const ModelCounts& counts = work.counts();
  const int64_t E = work.model.sparse.experts;
  const int64_t most = (E + work.axes.expert - 1) / work.axes.expert;
  const double rest = counts.sparse_parameters - number(E) * counts.expert_parameters;
  const PartTraining& training = work.block;
  const double bytes = state_bytes(work, training.trained, training.kept, work.axes.sharing());
  const double bytes_of_experts = state_bytes(work, training.trained_experts, training.kept_experts,
                                              work.axes.sharing_experts());
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

// The memory that the last stage keeps for its head: the norm's input; before and after the
// activation of a dense layer; the loss's gradients, the weight's if it is trained; and a tied
// weight that came from the first stage.
double bytes_of_head(const Workload& work, double rows) {
  const double D = static_cast<double>(work.model.width);
  const double weight = number(work.model.logits_per_token()) / number(work.axes.tensor) * D;
  const double gradients = D * rows + (work.head.products > 0 ? weight : 0);
  const bool comes_from_another_rank = work.counts().has_tied_head && work.axes.pipeline > 1 &&
                                       !parallel::ends_where_it_begins(work.schedule);
  const double of_dense = 2 * work.sizes.weight * work.counts().head_dense / D;
  return (work.sizes.weight * D + of_dense) * rows + work.sizes.wide * gradients +
         (comes_from_another_rank ? work.sizes.weight * weight : 0);
}

// The numbers that attention keeps for a token: of all heads, which the tensor axis divides, and of
// the latents, which it does not.
struct AttentionKept {
  double heads = 0;
  double latents = 0;
};
AttentionKept attention_kept(const Workload& work) {
  const model::ModelConfig& model = work.model;
  const model::AttentionConfig& latent = model.attention;
  if (work.recompute.attention) return {};
  // q, k and v are the core's inputs.
  const bool stores = work.input_offload_rate > 0 && work.recompute.attention_core;
  if (latent.is_latent()) {
    // q, k, v and the core's output, and that without its padding; a norm's in and out.
    const int64_t cores = stores ? 1 : 4;
    return {static_cast<double>(model.heads * (cores * latent.core_width() + latent.v_head_width)),
            2 * static_cast<double>(latent.q_lora_rank + latent.kv_lora_rank)};
  }
  const auto queries = static_cast<double>(model.heads * model.head_width());
  const auto all_keys = static_cast<double>(model.kv_heads * model.head_width());
  const double G = copies_keys(work) ? queries : all_keys;
  // q, its output, k and v; the norms' q and k. Ranks that share kv heads norm the keys of all,
  // where the norm is of all.
  const double of_queries = latent.qk_norm ? queries : 0;
  const double of_keys = latent.qk_norm ? all_keys : 0;
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

// What the adapters keep: an input's product with A, unless it is computed again; what is left of
// an input of which some is dropped; an output that is multiplied by a magnitude over a length, and
// that factor and the length.
// expert_rows: those that this rank's experts have and keep
double bytes_of_adapters(const Workload& work, double expert_rows) {
  const PartTraining& training = work.block;
  const model::RecomputePlan& again = work.recompute;
  const double item = work.sizes.weight, t = number(work.axes.tensor);
  double bytes = 0;
  for (const AdaptedLayer& layer : training.adapted) {
    if (layer.is_of_attention ? again.attention : again.feed_forward) continue;
    if (layer.is_of_experts) {
      bytes += item * (expert_rows * number(training.rank) +
                       number(work.expert_replicas) * layer.elements(number(training.rank), t));
      continue;
    }
    const double in = layer.splits_inputs ? layer.inputs / t : layer.inputs;
    const double out = layer.splits_inputs ? layer.outputs : layer.outputs / t;
    const double read = layer.splits_inputs ? tokens_of(work) : rows_of(work);
    const double written = layer.splits_inputs ? rows_of(work) : tokens_of(work);
    bytes += item * written * number(training.rank);
    if (training.drops_inputs) bytes += item * read * in;
    if (training.has_magnitudes) bytes += item * written * out + (item + work.sizes.wide) * out;
  }
  return bytes;
}

Kept count_kept(const Workload& work, bool stores_scores, double expert_skew) {
  const model::ModelConfig& model = work.model;
  const double item = work.sizes.weight;
  const double tensor = static_cast<double>(work.axes.tensor);
  const double tokens = tokens_of(work), rows = rows_of(work);
  const double D = static_cast<double>(model.width), F = static_cast<double>(model.ffn_width);
  const model::RecomputePlan& again = work.recompute;
  Kept kept;
  kept.head = bytes_of_head(work, rows);
  if (!work.block.has_backward) return kept;
  const bool stores = work.input_offload_rate > 0;
  if (again.block) {
    kept.dense_block = kept.sparse_block = stores ? 0 : item * D * rows;
    return kept;
  }
  const AttentionKept attention = attention_kept(work);
  const double branch = again.feed_forward ? 0 : work.kept_by_block.feed_forward;
  // Each token's copies for its experts, their hidden layers, and their results.
  const auto k = static_cast<double>(model.sparse.experts_per_token);
  const auto hidden = static_cast<double>(model.expert_width()),
             shared = static_cast<double>(model.shared_width());
  const bool keeps_rows = work.expert_chunk == 0 && !again.feed_forward;
  const double skew = work.axes.expert > 1 ? expert_skew : 1;
  const double experts = branch * (keeps_rows ? skew * k * hidden + shared : shared);
  const double copies = keeps_rows ? (1 + skew) * k * D : 0;  // what is sent, and what arrives
  const int branches = again.attention + again.feed_forward;
  // Adapters that drop read another tensor than the frozen layers, which keep nothing of an input
  // without gradient.
  const bool keeps_first = work.block.keeps_input || (again.attention && !stores);
  const bool skips_output =
      !keeps_first && work.block.drops_inputs && work.block.products == 0 && !again.attention;
  const int outputs = (stores ? 2 - branches : 2) - (skips_output ? 1 : 0);
  // The norms' inputs, the outputs of those before a branch, and what is computed between them.
  const int num_inputs = work.kept_by_block.norms - (keeps_first ? 0 : 1);
  const double norms = (num_inputs + outputs) * item * D * rows +
                       (stores_scores ? bytes_of_scores(work) : 0) +
                       bytes_of_adapters(work, keeps_rows ? skew * k * tokens : 0);
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

const LayerKinds& KeptByStages::kinds_of(const Workload& work) {
  const auto same = [&](const Known& known) {
    return known.recompute == work.recompute && known.training == work.block;
  };
  const auto found = std::ranges::find_if(known_, same);
  if (found != known_.end()) return found->kinds;
  known_.push_back({work.recompute, work.block, layer_kinds(work, stores_scores_, expert_skew_)});
  return known_.back().kinds;
}

double KeptByStages::of(const model::ModelPart& stage) {
  double sum = 0;
  visit_runs(work_, stage, [&](const Workload& work, const model::ModelPart& blocks) {
    sum += kinds_of(work).of(work_.model, blocks).activations;
  });
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

namespace {

// Operations of forward and backward of a token where all weights of a part are trained, and where
// those of work.block are. The part's own counts have the same rule, see model::TrainedPart.
double trained_flops(const Workload& work, double all, bool sparse) {
  if (work.block == PartTraining{}) return all;
  const BlockWork block = block_work(work, sparse);
  double forward = block.core.flops(), backward = 2 * block.core.flops(), whole = 3 * forward;
  for (const std::vector<Product>* products : {&block.attention, &block.feed_forward}) {
    for (const Product& product : *products) {
      forward += product.flops();
      backward += (1 + product.trained) * product.flops();
    }
  }
  Workload plain = work;
  plain.block = {};
  whole += 3 * block_work(plain, sparse).product_flops();
  return all * (forward + (work.block.has_backward ? backward : 0)) / whole;
}

}  // namespace

LayerKinds layer_kinds(const Workload& work, bool stores_scores, double expert_skew) {
  const model::ModelConfig& model = work.model;
  const ModelCounts& counts = work.counts();
  const Kept kept = count_kept(work, stores_scores, expert_skew);
  const auto memory = [&](double parameters, const PartTraining& training) {
    return parameters / static_cast<double>(work.axes.tensor) *
           state_bytes(work, training.trained, training.kept, work.axes.sharing());
  };
  const double head = 2 * (number(model.logits_per_token() * model.width) + counts.head_dense);
  LayerKinds kinds{
      .dense = {.time = trained_flops(work, counts.dense_flops, false),
                .memory = memory(counts.dense_parameters, work.block),
                .activations = kept.dense_block},
      .embedding = {.time = 0, .memory = memory(counts.embedding_parameters, work.embedding)},
      .head = {.time = head * (1 + (work.head.has_input_gradient ? 1 : 0) + work.head.products),
               .memory = memory(counts.head_parameters, work.head),
               .activations = kept.head}};
  kinds.sparse = model.sparse.experts > 0
                     ? parallel::LayerCost{.time = trained_flops(work, counts.sparse_flops, true),
                                           .memory = states_of_sparse_block(work),
                                           .activations = kept.sparse_block}
                     : kinds.dense;
  return kinds;
}

std::vector<parallel::LayerCost> layer_costs(const Workload& work, bool stores_scores,
                                             double expert_skew) {
  const auto add_layers = [&](const Workload& of, std::vector<parallel::LayerCost>& costs) {
    LayerKinds kinds;
    for (int64_t layer = 0; layer < work.model.layers; ++layer) {
      const bool is_known = layer > 0 && work.training_of(layer) == work.training_of(layer - 1);
      if (!is_known)
        kinds = layer_kinds(of.blocks ? of.of_layer(layer) : of, stores_scores, expert_skew);
      costs.push_back(work.model.sparse.is_sparse(layer) ? kinds.sparse : kinds.dense);
      if (layer == 0) add(costs.front(), kinds.embedding);
      if (layer + 1 == work.model.layers) add(costs.back(), kinds.head);
    }
  };
  std::vector<parallel::LayerCost> costs;
  add_layers(work, costs);
  const std::vector<model::BlockRun> all = work.recompute.runs(work.model.layers);
  if (all.size() == 1) return costs;
  // Times do not depend on what is recomputed, and decide the stages.
  const std::vector<int64_t> places =
      parallel::places_in_stages(costs, work.schedule, work.axes.pipeline, work.stages_per_rank);
  for (const model::BlockRun& run : all) {
    std::vector<parallel::LayerCost> of_run;
    add_layers(work.of_blocks(run), of_run);
    for (size_t layer = 0; layer < costs.size(); ++layer) {
      if (places[layer] < run.first || places[layer] >= run.first + run.count) continue;
      costs[layer].activations = of_run[layer].activations;
    }
  }
  return costs;
}

}  // namespace trireme::plan
