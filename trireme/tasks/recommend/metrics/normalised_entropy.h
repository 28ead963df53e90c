// How predicted probabilities compare with always predicting the share of positives: the mean
// cross-entropy divided by the entropy of that share. Below 1 is better. The state is that of a
// train::Metric (train/task/task_metrics.h).
// Source: He et al. 2014, "Practical lessons from predicting clicks on ads at Facebook", section 3
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace trireme::tasks::inline internal {

// (sum of cross-entropies in nats, positives, all)
inline constexpr int64_t kNormalisedEntropySize = 3;

// Shapes: logits_B [B], labels_B [B], 0 or 1 -> [kNormalisedEntropySize] fp64
at::Tensor normalised_entropy_state(const at::Tensor& logits_B, const at::Tensor& labels_B);

// NaN unless there are positives and negatives.
double normalised_entropy(std::span<const double> state);

}  // namespace trireme::tasks::inline internal
