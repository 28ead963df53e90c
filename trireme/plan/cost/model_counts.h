// Numbers of a model that every prediction needs. They take a plan of all its parameters, so a
// search counts once.
#pragma once

#include <cstdint>

#include "trireme/model/family/config.h"

namespace trireme::plan {

struct ModelCounts {
  // Of one block that is dense, or sparse; 0 when the model has none.
  double dense_parameters = 0;
  double sparse_parameters = 0;
  double dense_flops = 0;  // forward and backward of a token
  double sparse_flops = 0;
  double expert_parameters = 0;      // of one expert
  double attention_matmul = 0;       // weights of attention's projections
  double feed_forward_matrices = 0;  // of [D, F]: 2, or 3 with a gate
  double embedding_parameters = 0;   // with those of the last norm
  double head_parameters = 0;        // 0: tied to the embedding
  double flops_per_token = 0;
  bool has_tied_head = false;
};

ModelCounts count_model(const model::ModelConfig& config);

}  // namespace trireme::plan
