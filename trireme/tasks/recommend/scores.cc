#include "trireme/tasks/recommend/scores.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/tasks/recommend/metrics/normalised_entropy.h"
#include "trireme/tasks/recommend/retrieval_scores.h"

namespace trireme::tasks::inline internal {

at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

std::vector<train::Metric> metrics_of(const RecommendProblem& problem) {
  if (problem.is_two_tower()) return {{.name = "batch_accuracy"}};
  if (problem.num_outputs() > 1) return {{.name = "accuracy"}};
  return {
      {.name = "normalised_entropy", .size = kNormalisedEntropySize, .finish = normalised_entropy}};
}

std::vector<std::string> evaluation_metrics_of(const RecommendProblem& problem) {
  if (problem.is_two_tower()) {
    std::vector<std::string> names;
    for (const int64_t k : kRecallAt) names.push_back(concat("recall_at_", k));
    return names;
  }
  if (problem.num_outputs() > 1) return {};
  return {"auc"};
}

}  // namespace trireme::tasks::inline internal
