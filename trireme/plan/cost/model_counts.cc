#include "trireme/plan/cost/model_counts.h"

#include "trireme/model/family/family.h"

namespace trireme::plan {
namespace {

double of_int(int64_t n) { return static_cast<double>(n); }

// Forward and backward of one block, for a token.
double block_flops(const model::ModelConfig& config, bool sparse) {
  model::ModelConfig one = config;
  one.layers = 1;
  one.vocab_size = 0;
  one.sparse.dense_layers = sparse ? 0 : 1;
  one.sparse.expert_interval = 1;
  return model::flops_per_token(one);
}

}  // namespace

ModelCounts count_model(const model::ModelConfig& config) {
  const model::Family& family = model::family_of(config);
  const double D = of_int(config.width);
  model::ModelConfig wider = config;
  wider.ffn_width += 1;
  model::ModelConfig none = config;
  none.layers = 0;
  ModelCounts counts;
  const double matmul = family.matmul_parameters(config, false);
  counts.feed_forward_matrices = (family.matmul_parameters(wider, false) - matmul) / D;
  counts.attention_matmul = matmul - counts.feed_forward_matrices * D * of_int(config.ffn_width);
  counts.dense_parameters = of_int(model::block_parameters(config, false));
  counts.dense_flops = block_flops(config, false);
  if (config.sparse.experts > 0) {
    counts.sparse_parameters = of_int(model::block_parameters(config, true));
    counts.sparse_flops = block_flops(config, true);
    counts.expert_parameters = counts.feed_forward_matrices * D * of_int(config.expert_width());
  }
  counts.has_tied_head = config.has_tied_head();
  counts.head_parameters = counts.has_tied_head ? 0 : of_int(config.vocab_size) * D;
  counts.embedding_parameters = of_int(model::num_parameters(none)) - counts.head_parameters;
  counts.flops_per_token = model::flops_per_token(config);
  return counts;
}

}  // namespace trireme::plan
