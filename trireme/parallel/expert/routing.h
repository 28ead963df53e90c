// Which experts each token goes to, and how much each of them counts.
// Sources: Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961 (Switch: one
//          expert per token); Jiang et al. 2024, arXiv:2401.04088 (Mixtral: softmax over the
//          chosen); DeepSeek-AI 2024, arXiv:2412.19437, section 2.1.2 (sigmoid, bias, groups)
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

enum class RouterScore { kSoftmax, kSigmoid };

struct RouterOptions {
  int64_t experts_per_token = 2;  // k
  RouterScore score = RouterScore::kSoftmax;
  bool normalise = true;  // a token's weights are divided by their sum
  double scale = 1;       // of the weights
  // Experts lie in `groups` equal groups, of which a token uses at most `groups_per_token`: those
  // whose two best experts have the largest sum.
  int64_t groups = 1;
  int64_t groups_per_token = 1;
};

struct Routing {
  at::Tensor experts_SK;  // [S, k] int64, the best first
  at::Tensor weights_SK;  // [S, k], with gradients for the logits
  at::Tensor scores_SE;   // [S, E], with gradients: of all experts
};

// Chooses the k experts with the largest score + bias, and among equal ones those with the lowest
// index. Weights come from the scores alone.
// Shapes: logits_SE [S, E] in fp32 or fp64, S may be 0; bias_E [E], undefined: none; chosen_SK: the
//         experts of the same routing before, which are kept, undefined: none
// Source: Wang et al. 2024, arXiv:2408.15664 (the bias)
Routing route(const at::Tensor& logits_SE, const at::Tensor& bias_E, const RouterOptions& options,
              const at::Tensor& chosen_SK = {});

// The indices of the k largest values of each row, the largest first. Of equal values the lowest
// index comes first, on every device. NaN counts as the largest.
// Shapes: x_SE [S, E] -> [S, k] int64
at::Tensor largest_indices(const at::Tensor& x_SE, int64_t k);

}  // namespace trireme::parallel
