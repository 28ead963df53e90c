// Direct preference optimization: the loss of pairs of answers, from the log-probabilities that the
// model and a frozen reference give them.
// Source: Rafailov et al. 2023, arXiv:2305.18290, equation 7; label smoothing: Mitchell 2023, "A
//         note on DPO with noisy preferences & relationship to IPO", equation 3
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/train/task/task.h"

namespace trireme::tasks {

struct PreferenceOptions {
  double beta = 0.1;           // how strongly the model is held to the reference
  double label_smoothing = 0;  // probability that a pair has its answers the wrong way round
};

struct PreferenceLoss {
  at::Tensor sum;        // scalar fp64, over pairs
  at::Tensor slopes_P2;  // its derivative by each answer's cross-entropy
  at::Tensor metrics;    // states of preference_metrics()
};

// With s = beta ((c - c_ref) - (r - r_ref)), where c and r are the log-probabilities of the chosen
// and the rejected answer, a pair's loss is -(1 - e) log sigmoid(s) - e log sigmoid(-s).
// Shapes: losses_P2 [P, 2] fp64, the sums of cross-entropies of both answers, -c and -r;
//         reference_P2 [P, 2] fp64, c_ref and r_ref
PreferenceLoss preference_loss(const at::Tensor& losses_P2, const at::Tensor& reference_P2,
                               const PreferenceOptions& options);

// reward_chosen and reward_rejected, beta (c - c_ref) and beta (r - r_ref); reward_margin, their
// difference s; and reward_accuracy, the share of pairs with s > 0: means over pairs.
std::vector<train::Metric> preference_metrics();

}  // namespace trireme::tasks
