// A training step and its division over ranks: everything that the cost model reads. Plain numbers;
// made from a run's config (tasks/language/workload.h) or by the planner. Beside them, the counts
// of the model and the memory of its states, which follow from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::plan {

// Counts of a model's parameters and operations, which every prediction needs. Counting takes a
// plan of all parameters, so a search does it once.
struct ModelCounts {
  // Counts of one dense or sparse block; 0 when the model has none.
  double dense_parameters = 0;
  double sparse_parameters = 0;
  double dense_flops = 0;  // forward and backward of a token
  double sparse_flops = 0;
  double expert_parameters = 0;      // of one expert
  double attention_matmul = 0;       // weights of attention's projections
  double feed_forward_matrices = 0;  // of [D, F]: 2, or 3 with a gate
  double embedding_parameters = 0;   // with those of the last norm, or of what is in its place
  double head_parameters = 0;        // 0: tied to the embedding
  double head_dense = 0;  // weights [., D] that multiply a token before the head's [V, D]
  double flops_per_token = 0;
  bool has_tied_head = false;
  bool is_causal = true;
};

ModelCounts count_model(const model::ModelConfig& config);

// The rate of what is offloaded, until the cluster's is known.
inline constexpr double kUnknownRate = std::numeric_limits<double>::infinity();

// Buffers through which a rank's states on a disk pass.
inline constexpr int kStateBuffers = 3;

// Bytes of a number. `states`: bytes of optimizer state per parameter, without master weights.
struct NumberSizes {
  double weight = 4;  // and activation
  double gradient = 4;
  double wide = 4;       // of what is computed in fp32 at least
  bool is_bf16 = false;  // weights and activations
  double states = 8;
  bool has_masters = false;
  double outer = 0;  // what a learner keeps beside its states
  // The share of the parameters that is trained. Bytes of gradients, states and masters are means
  // over all of them.
  double trained_share = 1;
  // What of `weight` is kept between uses: less where frozen weights are codes.
  double kept_share = 1;
  bool states_on_disk = false;
  double state_buffer = 0;  // bytes of each buffer through which they pass, at most
  // A rank's parts of weights (ZeRO-3) and gradients (ZeRO-2 and 3) leave the device's memory
  // between uses, at so many bytes per second each way. 0: they stay.
  double weight_offload_rate = 0;
  double gradient_offload_rate = 0;
  // Whether the parts that leave lie on a disk. Otherwise they are in the host's memory.
  bool weights_on_disk = false;
  bool gradients_on_disk = false;
  // The host of a GPU holds the parameters and updates them, with the states beside them.
  bool updated_by_host = false;
  // Set by hold_gradients():
  bool rank_first = false;     // each microbatch's gradients are summed over the ranks
  bool adds_wide = false;      // microbatches are added in `wide`
  bool in_tree = false;        // they are added in a tree
  int64_t held_gradients = 0;  // sums beside the step's, until the last microbatch

  double kept_weight() const { return kept_share * weight; }
  // Of a gradient to which microbatches are added.
  double kept_gradient() const {
    return adds_wide ? std::max(gradient, trained_share * wide) : gradient;
  }
  double states_and_masters() const { return states + (has_masters ? trained_share * wide : 0); }
  // The same for parameters of which this share is trained.
  NumberSizes with_share(double share) const {
    NumberSizes sizes = *this;
    const double factor = trained_share > 0 ? share / trained_share : 0;
    sizes.trained_share = share;
    sizes.gradient *= factor;
    sizes.states *= factor;
    sizes.outer *= factor;
    return sizes;
  }
  // Of a parameter that is trained, and of one that is kept as the run's trained ones are.
  NumberSizes of_trained() const {
    NumberSizes sizes = with_share(1);
    sizes.kept_share = 1;
    return sizes;
  }
};

// A linear layer of a block that has an adapter, or a stack of all experts' layers, of which these
// are one's.
struct AdaptedLayer {
  double inputs = 0;
  double outputs = 0;
  bool splits_inputs = false;  // between tensor ranks; otherwise its outputs
  bool is_of_attention = false;
  bool is_of_experts = false;

  // The adapter's elements on a tensor rank, of one expert.
  double elements(double rank, double tensor) const {
    return rank * (splits_inputs ? inputs / tensor + outputs : inputs + outputs / tensor);
  }
  bool operator==(const AdaptedLayer&) const = default;
};

// What of a part of the model is trained. Shares are of its parameters without adapters, which is
// what ModelCounts has the numbers of.
struct PartTraining {
  double trained = 1;  // parameters that are trained, adapters among them
  double kept = 1;     // bytes of all weights with adapters, in those of weights in the run's dtype
  double trained_experts = 1;  // the same of the experts' parameters
  double kept_experts = 1;
  // Of the weights in products, those that are trained: of attention (or the head), and of the
  // feed-forward with its experts.
  double products = 1;
  double feed_forward_products = 1;
  bool has_backward = true;        // it, or a part before it, is trained
  bool keeps_input = true;         // for the backward of its first norm, if it begins with one
  bool has_input_gradient = true;  // a part before it is trained
  // Adapters, each of this rank.
  std::vector<AdaptedLayer> adapted{};
  int64_t rank = 0;
  bool drops_inputs = false;    // an adapter keeps what it has not dropped
  bool has_magnitudes = false;  // a layer keeps its output without them

  bool operator==(const PartTraining&) const = default;
  static PartTraining frozen() {
    return {.trained = 0,
            .trained_experts = 0,
            .products = 0,
            .feed_forward_products = 0,
            .has_backward = false,
            .keeps_input = false,
            .has_input_gradient = false};
  }
};

// Numbers of ranks. `shard` of the `data` ranks divide one copy of the states.
struct Axes {
  int64_t data = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t expert = 1;

  int64_t num_ranks() const;
  // Those that read samples of their own, and those that compute on other tokens.
  int64_t sample_ranks() const;
  int64_t token_ranks() const;
  // The ranks over which ZeRO divides states: of data and context, and of those that hold the same
  // experts.
  int64_t sharing() const;
  int64_t sharing_experts() const { return expert == 1 ? sharing() : token_ranks() / expert; }
};
// The axes by name, without shard, which lies within data. Each has the key parallel.<axis>.
struct AxisSize {
  std::string_view axis;
  int64_t Axes::*size;
};
inline constexpr AxisSize kAxisSizes[] = {{"data", &Axes::data},
                                          {"tensor", &Axes::tensor},
                                          {"pipeline", &Axes::pipeline},
                                          {"context", &Axes::context},
                                          {"expert", &Axes::expert}};

inline double number(int64_t n) { return static_cast<double>(n); }
struct Workload {
  model::ModelConfig model;  // with its vocab_size; set_model() sets both
  std::shared_ptr<const ModelCounts> counted{};
  NumberSizes sizes;
  Axes axes;
  int64_t global_batch = 1;    // sequences
  int64_t smallest_batch = 0;  // the first of a batch that grows; 0: it does not
  int64_t micro_batch = 1;
  bool reproducible = false;         // gradients are summed in a tree
  std::optional<bool> rank_first{};  // parallel.gradient_order; none: auto
  int64_t zero = 0;
  int64_t gathered_units = 3;
  bool sequence_parallel = false;
  bool overlap = true;        // gradients and gathers behind computation
  bool hides_tensor = false;  // the tensor axis communicates while it multiplies
  std::string schedule = "1f1b";
  int64_t stages_per_rank = 0;
  int64_t bucket_bytes = 4 << 20;
  int64_t expert_chunk = 0;
  int64_t expert_replicas = 0;
  bool separate_documents = false;
  // All logits of a microbatch exist at once, as in other programs; ours have a chunk of them.
  bool has_whole_logits = false;
  model::Recompute recompute_kind = model::Recompute::kNone;
  model::RecomputePlan recompute{};
  // The inputs of what recomputes leave the device's memory until backward, at so many bytes per
  // second each way: of recompute.num_stored blocks. 0: they stay.
  double input_offload_rate = 0;
  model::KeptByBlock kept_by_block{};
  // What is trained of the embedding, of the head, and of each block; null: of all blocks `block`.
  PartTraining embedding{};
  PartTraining head{};
  PartTraining block{};
  std::shared_ptr<const std::vector<PartTraining>> blocks{};
  double trained_flops_per_token = 0;  // 0: counts().flops_per_token
  // A frozen model that reads every sequence before the model does: only its `model` and `counted`
  // are used, see work_of_teacher(). Null: there is none.
  std::shared_ptr<const Workload> teacher{};

  // This workload if all blocks recomputed and stored what those of the run do.
  Workload of_blocks(const model::BlockRun& run) const {
    Workload work = *this;
    work.recompute = run.plan;
    if (run.plan.num_stored == 0) work.input_offload_rate = 0;
    return work;
  }
  const PartTraining& training_of(int64_t layer) const {
    return blocks ? blocks->at(static_cast<size_t>(layer)) : block;
  }
  // This workload if all blocks were trained as that one.
  Workload of_layer(int64_t layer) const {
    Workload work = *this;
    work.block = training_of(layer);
    work.blocks = nullptr;
    return work;
  }
  double flops_per_token() const {
    return trained_flops_per_token > 0 ? trained_flops_per_token : counts().flops_per_token;
  }

  void set_model(model::ModelConfig config) {
    model = std::move(config);
    counted = std::make_shared<ModelCounts>(count_model(model));
  }
  const ModelCounts& counts() const {
    TRIREME_ASSERT(counted != nullptr, "a workload without a model");
    return *counted;
  }

  int64_t sequences_per_forward() const { return micro_batch * axes.sample_ranks(); }
  int64_t num_microbatches() const {
    return (global_batch + sequences_per_forward() - 1) / sequences_per_forward();
  }
  double tokens_per_step() const {
    return static_cast<double>(global_batch) * static_cast<double>(model.sequence_length);
  }
};

// The forwards of the teacher of `work`, on the same ranks.
Workload work_of_teacher(const Workload& work);

// Memory of weights, gradients and optimizer states, as ZeRO divides them.

// How a rank holds gradients from a step's first microbatch to its last. If microbatches come
// first, it holds one sum of whole gradients, and with ZeRO-2 and 3 also its own part of the step's
// sum; if ranks come first, only that part. A tree of m holds log2(m) such sums and that part.
void hold_gradients(NumberSizes& sizes, bool rank_first, bool in_tree, int64_t num_microbatches);
// The same for the workload's zero, order and microbatches.
void hold_gradients(Workload& work);

// Bytes per parameter.
struct StateBytes {
  double weights = 0;
  double gradients = 0;
  double states = 0;
  double outer = 0;  // of a learner

  double total() const { return weights + gradients + states + outer; }
};

// Bytes of weights, gradients and optimizer states per parameter in a rank's part of the model,
// which ZeRO stage `zero` divides over `ranks`.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3
StateBytes state_bytes_by_kind(const NumberSizes& sizes, int64_t zero, int64_t ranks);
double state_bytes_per_parameter(const NumberSizes& sizes, int64_t zero, int64_t ranks);

}  // namespace trireme::plan
