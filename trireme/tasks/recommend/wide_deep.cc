#include "trireme/tasks/recommend/wide_deep.h"

#include <ATen/ATen.h>

namespace trireme::tasks::inline internal {

WideDeep::WideDeep(const RecommendProblem& problem)
    : deep_width_(std::ssize(problem.schema.tables) * problem.config.model.width),
      num_outputs_(problem.num_outputs()) {
  const int64_t num_dense = problem.schema.num_dense();
  std::vector<int64_t> widths = parse_widths(problem.config.model.top, "model.top");
  widths.insert(widths.begin(), deep_width_ + num_dense);
  widths.push_back(num_outputs_);
  deep_ = register_module("deep", std::make_shared<Mlp>(widths, /*ends_with_relu=*/false));
  flops_ += mlp_flops(widths);
  if (num_dense == 0) return;
  widths = {num_dense, num_outputs_};
  wide_ = register_module("wide", std::make_shared<Mlp>(widths, /*ends_with_relu=*/false));
  flops_ += mlp_flops(widths);
}

at::Tensor WideDeep::forward(const Samples& in) {
  const int64_t wide_width = in.embedded_BW.size(1) - deep_width_;
  const at::Tensor deep_BW = in.embedded_BW.narrow(1, 0, deep_width_);
  const at::Tensor wide_BTO = in.embedded_BW.narrow(1, deep_width_, wide_width)
                                  .unflatten(1, {wide_width / num_outputs_, num_outputs_});
  at::Tensor logits_BO = wide_BTO.sum(1);
  const at::Tensor x = wide_ ? at::cat({in.dense_BF, deep_BW}, 1) : deep_BW;
  logits_BO = logits_BO + run(0, x, [&](const at::Tensor& deep) { return deep_->forward(deep); });
  if (!wide_) return logits_BO;
  return logits_BO +
         run(1, in.dense_BF, [&](const at::Tensor& dense) { return wide_->forward(dense); });
}

}  // namespace trireme::tasks::inline internal
