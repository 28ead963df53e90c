#include "trireme/tasks/recommend/label_scores.h"

#include <ATen/ATen.h>

#include "trireme/tasks/recommend/metrics/area_under_curve.h"
#include "trireme/tasks/recommend/metrics/normalised_entropy.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::tasks::inline internal {
namespace {

class ClickScores : public Scores {
 public:
  explicit ClickScores(comm::Communicator* group) : group_(group) {}

  at::Tensor loss_sum(const at::Tensor& logits_B1, const at::Tensor& label_B) const override {
    const at::Tensor logits_B = wide(logits_B1).squeeze(1);
    return at::binary_cross_entropy_with_logits(logits_B, label_B.to(logits_B.scalar_type()), {},
                                                {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_B1, const at::Tensor& label_B) const override {
    return normalised_entropy_state(wide(logits_B1).squeeze(1), label_B);
  }
  void add(const Samples& /*samples*/, const at::Tensor& logits_B1,
           const at::Tensor& label_B) override {
    area_.add(logits_B1.squeeze(1).to(at::kFloat), label_B);
  }
  void clear() override { area_.clear(); }
  std::vector<double> finish() override {
    return {group_ == nullptr ? area_.local_area() : area_.gather_area(*group_)};
  }

 private:
  comm::Communicator* group_;
  AreaUnderCurve area_;
};

class ClassScores : public Scores {
 public:
  at::Tensor loss_sum(const at::Tensor& logits_BC, const at::Tensor& label_B) const override {
    return at::cross_entropy_loss(wide(logits_BC), label_B, {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_BC, const at::Tensor& label_B) const override {
    return train::accuracy_state(wide(logits_BC), label_B);
  }
  void add(const Samples& /*samples*/, const at::Tensor& /*logits*/,
           const at::Tensor& /*label_B*/) override {}
  void clear() override {}
  std::vector<double> finish() override { return {}; }
};

}  // namespace

std::unique_ptr<Scores> make_label_scores(const RecommendProblem& problem,
                                          comm::Communicator* group) {
  if (problem.num_outputs() > 1) return std::make_unique<ClassScores>();
  return std::make_unique<ClickScores>(group);
}

}  // namespace trireme::tasks::inline internal
