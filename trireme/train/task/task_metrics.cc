#include "trireme/train/task/task_metrics.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kBinsPerUnit = 32;

// right_B [B] bool -> (right, all)
at::Tensor share_state(const at::Tensor& right_B) {
  const at::Tensor right = right_B.sum().to(at::kDouble);
  return at::stack({right, at::full_like(right, static_cast<double>(right_B.size(0)))});
}

struct Counts {
  std::span<const double> negatives, positives;  // by bin

  explicit Counts(std::span<const double> state)
      : negatives(state.first(state.size() / 2)), positives(state.last(state.size() / 2)) {}
  double num_pairs() const {
    const auto sum = [](std::span<const double> counts) {
      return std::accumulate(counts.begin(), counts.end(), 0.0);
    };
    return sum(negatives) * sum(positives);
  }
};

}  // namespace

double mean_of(std::span<const double> state) {
  return state[1] == 0 ? kUndefined : state[0] / state[1];
}

double perplexity(std::span<const double> state) { return std::exp(mean_of(state)); }

at::Tensor accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B) {
  return share_state(logits_BC.argmax(1).eq(labels_B));
}

at::Tensor top_k_accuracy_state(const at::Tensor& logits_BC, const at::Tensor& labels_B,
                                int64_t k) {
  TRIREME_CHECK(k > 0, "top-k accuracy with k = ", k, "; expected at least 1");
  const at::Tensor labels_B1 = labels_B.unsqueeze(1);
  const at::Tensor own_B1 = logits_BC.gather(1, labels_B1);
  const at::Tensor classes_C = at::arange(logits_BC.size(1), labels_B.options());
  const at::Tensor is_before_BC = logits_BC.eq(own_B1).logical_and(classes_C.lt(labels_B1));
  // Not <=, rather than >: also true of a NaN.
  const at::Tensor is_larger_BC = logits_BC.le(own_B1).logical_not();
  const at::Tensor place_B = is_larger_BC.logical_or(is_before_BC).sum(1);
  return share_state(place_B.lt(k).logical_and(own_B1.squeeze(1).isnan().logical_not()));
}

at::Tensor auc_state(const at::Tensor& logits_B, const at::Tensor& labels_B) {
  const at::Tensor scaled_B = logits_B.to(at::kDouble).mul(kBinsPerUnit).floor();
  const at::Tensor bins_B = scaled_B.add(kAucBins / 2).nan_to_num(0).clamp(0, kAucBins - 1);
  const at::Tensor index_B = bins_B.to(at::kLong) + labels_B.ne(0).to(at::kLong) * kAucBins;
  const at::Tensor counts = at::bincount(index_B, {}, kAucStateSize).to(at::kDouble);
  return at::where(scaled_B.isnan().any(), at::full_like(counts, kUndefined), counts);
}

double auc(std::span<const double> state) {
  const Counts counts(state);
  const double num_pairs = counts.num_pairs();
  if (num_pairs == 0) return kUndefined;
  double right = 0, below = 0;  // negatives in lower bins
  for (size_t bin = 0; bin < counts.negatives.size(); ++bin) {
    right += counts.positives[bin] * (below + counts.negatives[bin] / 2);
    below += counts.negatives[bin];
  }
  return right / num_pairs;
}

double auc_error(std::span<const double> state) {
  const Counts counts(state);
  const double num_pairs = counts.num_pairs();
  if (num_pairs == 0) return kUndefined;
  const double together = std::inner_product(counts.negatives.begin(), counts.negatives.end(),
                                             counts.positives.begin(), 0.0);
  return together / (2 * num_pairs);
}

}  // namespace trireme::train
