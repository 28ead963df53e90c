#include "trireme/tasks/recommend/metrics/normalised_entropy.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

namespace trireme::tasks::inline internal {

at::Tensor normalised_entropy_state(const at::Tensor& logits_B, const at::Tensor& labels_B) {
  const at::Tensor logits = logits_B.detach().to(at::kDouble);
  const at::Tensor labels = labels_B.detach().to(at::kDouble);
  const at::Tensor loss =
      at::binary_cross_entropy_with_logits(logits, labels, {}, {}, at::Reduction::Sum);
  const at::Tensor positives = labels.sum();
  const at::Tensor all = at::full_like(positives, static_cast<double>(labels.numel()));
  return at::stack({loss, positives, all});
}

double normalised_entropy(std::span<const double> state) {
  const double sum = state[0];
  const double positives = state[1];
  const double negatives = state[2] - positives;
  if (!(positives > 0 && negatives > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double entropy =
      -(positives * std::log(positives / state[2]) + negatives * std::log(negatives / state[2]));
  return sum / entropy;
}

}  // namespace trireme::tasks::inline internal
