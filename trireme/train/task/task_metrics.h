// Metrics that tasks report beside the loss. Each is a state of numbers that add up over
// microbatches and ranks, and a function that turns their sum into the metric (Metric in task.h).
// How the samples are divided changes nothing: states are whole numbers, except those of losses.
//
//   std::vector<Metric> metrics() const override {
//     return {{.name = "top5_accuracy"}, {.name = "auc", .size = kAucStateSize, .finish = auc}};
//   }
//
// A batch may be empty. A function of no samples returns NaN, see Metric.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace trireme::train {

// state: (sum, count). The mean; NaN when count is 0.
double mean_of(std::span<const double> state);

// state: (sum of cross-entropies in nats, number of tokens). exp of their mean; NaN without tokens.
double perplexity(std::span<const double> state);

// (right, all), for mean_of(): whether the largest logit is the label's.
// Shapes: logits_BC [B, C], labels_B [B] int64 -> [2] fp64
at::Tensor accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B);

// The same for whether the label's logit is among the k largest. Of equal logits the class with the
// lower number comes first. A NaN is larger than all, and never right.
// Shapes: logits_BC [B, C], labels_B [B] int64 -> [2] fp64
at::Tensor top_k_accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B,
                                int64_t k = 5);

// The area under the ROC curve of a binary score: the share of (positive, negative) pairs in which
// the positive has the higher score; equal scores count half. The exact value would need every
// score, so the state counts both classes in bins of the logit, each 1/32 wide from -16 to 16, with
// all beyond in the outer ones.
//
// Bound: pairs in different bins are counted right. Of the p n pairs in one bin, at most all are
// right and at least none, and half are counted. So with P positives and N negatives
//   |auc(state) - AUC| <= sum over bins of p n / (2 P N) = auc_error(state),
// which is at most half the share of either class in its fullest bin. No bound from the bins alone
// is smaller: one positive and one negative in a bin reach it.
inline constexpr int64_t kAucBins = 1024;
inline constexpr int64_t kAucStateSize = 2 * kAucBins;

// The negatives in each bin, then the positives. 16 KiB per microbatch. NaN when a logit is NaN.
// Shapes: logits_B [B], labels_B [B], 0 for negatives -> [2 * kAucBins] fp64
at::Tensor auc_state(const at::Tensor& logits_B, const at::Tensor& labels_B);

// NaN when a class has no sample.
double auc(std::span<const double> state);
double auc_error(std::span<const double> state);

}  // namespace trireme::train
