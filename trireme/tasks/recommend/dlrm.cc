#include "trireme/tasks/recommend/dlrm.h"

#include <ATen/ATen.h>

#include "trireme/tasks/recommend/layers/pair_products.h"

namespace trireme::tasks::inline internal {

Dlrm::Dlrm(const RecommendProblem& problem) : width_(problem.config.model.width) {
  const RecommendModelConfig& model = problem.config.model;
  const int64_t num_dense = problem.schema.num_dense();
  const int64_t N = std::ssize(problem.schema.tables) + (num_dense > 0 ? 1 : 0);
  if (num_dense > 0) {
    std::vector<int64_t> widths = parse_widths(model.bottom, "model.bottom");
    widths.insert(widths.begin(), num_dense);
    widths.push_back(width_);
    bottom_ = register_module("bottom", std::make_shared<Mlp>(widths, /*ends_with_relu=*/true));
    flops_ += mlp_flops(widths);
  }
  int64_t found = N * width_;
  if (model.family == RecommendFamily::kDlrmDcnV2) {
    cross_ = register_module(
        "cross", std::make_shared<CrossNetwork>(found, model.cross_rank, model.cross_layers));
    flops_ += 4.0 * static_cast<double>(found * model.cross_rank * model.cross_layers);
  } else {
    flops_ += 2.0 * static_cast<double>(N * N * width_);
    found = N * (N - 1) / 2 + (num_dense > 0 ? width_ : 0);
  }
  std::vector<int64_t> widths = parse_widths(model.top, "model.top");
  widths.insert(widths.begin(), found);
  widths.push_back(problem.num_outputs());
  top_ = register_module("top", std::make_shared<Mlp>(widths, /*ends_with_relu=*/false));
  flops_ += mlp_flops(widths);
}

at::Tensor Dlrm::forward(const Samples& in) {
  size_t child = 0;
  at::Tensor dense_BD;
  if (bottom_) {
    dense_BD = run(child++, in.dense_BF, [&](const at::Tensor& x) { return bottom_->forward(x); });
  }
  at::Tensor found;
  if (cross_) {
    const at::Tensor all_BW = bottom_ ? at::cat({dense_BD, in.embedded_BW}, 1) : in.embedded_BW;
    found = run(child++, all_BW, [&](const at::Tensor& x) { return cross_->forward(x); });
  } else {
    found = pair_products(dense_BD, in.embedded_BW, width_);
  }
  return run(child, found, [&](const at::Tensor& x) { return top_->forward(x); });
}

}  // namespace trireme::tasks::inline internal
