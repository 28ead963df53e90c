// The cost of each layer of a language model: its time, and the memory of its states and
// activations.
#pragma once

#include <vector>

#include "trireme/model/family/parts.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/products.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// The sparse blocks of a part of the model.
int64_t num_sparse(const model::ModelConfig& model, const model::ModelPart& part);

// The bytes that a block's recomputed modules give to the store: the sum, and the largest tensor.
struct InputBytes {
  double sum = 0;
  double largest = 0;
};
InputBytes stored_input_bytes(const Workload& work);

// Calls visit(workload, blocks) for each run of blocks of a stage that recompute, store and train
// the same: the workload is that of a model of such blocks. The first run embeds and the last has
// the head if the stage does.
template <typename Visit>
void visit_runs(const Workload& work, const model::ModelPart& stage, const Visit& visit) {
  for (const model::BlockRun& run : work.recompute.runs(stage.num_layers)) {
    const int64_t end = run.first + run.count;
    for (int64_t first = run.first, next = 0; first < end; first = next) {
      const int64_t layer = stage.first_layer + first;
      next = work.blocks ? first + 1 : end;
      while (next < end && work.training_of(stage.first_layer + next) == work.training_of(layer))
        ++next;
      const model::ModelPart blocks{.first_layer = layer,
                                    .num_layers = next - first,
                                    .embeds = stage.embeds && first == 0,
                                    .has_head = stage.has_head && next == stage.num_layers};
      if (run.plan == work.recompute && !work.blocks) {
        visit(work, blocks);
      } else {
        visit(work.of_blocks(run).of_layer(layer), blocks);
      }
    }
  }
}

// The cost of each kind of block, and the extra cost of the first and last layers. All blocks
// recompute, store and train the same.
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
  KeptByStages(const Workload& work, bool stores_scores, double expert_skew)
      : work_(work), stores_scores_(stores_scores), expert_skew_(expert_skew) {}
  double of(const model::ModelPart& stage);

 private:
  struct Known {
    model::RecomputePlan recompute{};
    PartTraining training{};
    LayerKinds kinds{};
  };
  const LayerKinds& kinds_of(const Workload& work);

  const Workload& work_;
  bool stores_scores_;
  double expert_skew_;
  std::vector<Known> known_{};
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
