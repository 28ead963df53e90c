// The cost of each layer of a language model: its matrix products by shape, its time, and the
// memory of its states and activations.
#pragma once

#include <utility>
#include <vector>

#include "trireme/model/family/parts.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// The matrix products of a model's forward on one rank, by shape, and what surrounds them.

// [rows, inner] times [inner, columns], `count` times.
struct Product {
  double rows = 0;
  double columns = 0;
  double inner = 0;
  double count = 1;
  // The columns are those of so many weights. This program multiplies by one after the other, and
  // others by all at once.
  double num_weights = 1;

  double flops() const { return 2 * rows * columns * inner * count; }
};

// softmax(q k^T) v of all heads of this rank.
struct AttentionCore {
  double queries = 0;  // of all sequences of the microbatch
  double keys = 0;     // of one sequence
  double heads = 0;
  double width = 0;  // of a head
  bool is_causal = true;

  // Forward, of the whole square of scores.
  double flops() const { return 4 * queries * keys * heads * width; }
  double scores() const { return queries * keys * heads; }
};

// A block's forward of one microbatch on one rank.
struct BlockWork {
  std::vector<Product> attention{};  // its projections
  std::vector<Product> feed_forward{};
  AttentionCore core{};
  double wide_elements = 0;    // of the residual stream, read or written by elementwise work
  double hidden_elements = 0;  // of feed-forward and heads
  double num_kernels = 0;      // launches
  // Parameters of this rank: those of every token, and those of its experts.
  double parameters = 0;
  double expert_parameters = 0;
  // Rows of width D that go to the experts' ranks and come back.
  double dispatched_rows = 0;

  double product_flops() const;
};

struct HeadWork {
  Product logits{};
  Product dense{};           // before them
  double loss_elements = 0;  // logits read or written by the loss
};

// Tokens of a microbatch on a rank, and rows between the layers.
double tokens_of(const Workload& work);
double rows_of(const Workload& work);

// The work of a block. With expert ranks, that of the rank that gets expert_skew times the mean
// number of tokens.
BlockWork block_work(const Workload& work, bool sparse, double expert_skew = 1);
HeadWork head_work(const Workload& work);

// The sparse blocks of a part of the model.
int64_t num_sparse(const model::ModelConfig& model, const model::ModelPart& part);

// The bytes that a block's recomputed modules give to the store: the sum, and the largest tensor.
struct InputBytes {
  double sum = 0;
  double largest = 0;
};
InputBytes stored_input_bytes(const Workload& work);

// The cost of each kind of block, and the extra cost of the first and last layers. All blocks
// recompute and store the same.
struct LayerKinds {
  parallel::LayerCost dense{};
  parallel::LayerCost sparse{};
  parallel::LayerCost embedding{};
  parallel::LayerCost head{};

  // The sum over the layers of a part of the model.
  parallel::LayerCost of(const model::ModelConfig& model, const model::ModelPart& part) const;
};
LayerKinds layer_kinds(const Workload& work, bool stores_scores = false, double expert_skew = 1);

// The bytes that one microbatch's forward keeps for its backward, by parts of the model that are
// stages. Their first blocks recompute, or store, more than the others.
class KeptByStages {
 public:
  KeptByStages(const Workload& work, bool stores_scores, double expert_skew);
  double of(const model::ModelPart& stage) const;

 private:
  const LayerKinds& kinds_of(const model::RecomputePlan& plan) const;

  const Workload& work_;
  std::vector<std::pair<model::RecomputePlan, LayerKinds>> kinds_;
};

// The cost of every layer. The embedding counts with the first layer and the head with the last.
// Time is that of the matrix products, in any unit. Memory is that of one rank, the one with most
// experts: weights, gradients and optimizer states as the axes and ZeRO divide them, and the
// tensors that one microbatch's forward keeps for its backward. With expert ranks it is the rank
// that gets expert_skew times the mean of the tokens.
// stores_scores: attention keeps its scores and their dropout, as composed of products.
// Excludes what is temporary (buckets, gathered weights) and libtorch itself.
// Source: activations as counted in Korthikanti et al. 2022, arXiv:2205.05198, section 4, for these
//         layers (docs/reference/models.md says what each keeps)
std::vector<parallel::LayerCost> layer_costs(const Workload& work, bool stores_scores = false,
                                             double expert_skew = 1);

}  // namespace trireme::plan
