#include "trireme/tasks/recommend/two_tower.h"

#include <limits>

#include <ATen/ATen.h>

namespace trireme::tasks::inline internal {
namespace {

at::Tensor to_unit(const at::Tensor& x_BD) {
  constexpr double kLeast = 1e-12;
  return x_BD / x_BD.norm(2, 1, /*keepdim=*/true).clamp_min(kLeast);
}

}  // namespace

TwoTower::TwoTower(const RecommendProblem& problem)
    : query_width_(std::ssize(columns_of(problem.schema, dataset::TableSide::kQuery)) *
                   problem.config.model.width),
      temperature_(problem.config.model.temperature) {
  const RecommendModelConfig& model = problem.config.model;
  const auto num_items = std::ssize(columns_of(problem.schema, dataset::TableSide::kItem));
  const auto tower = [&](const char* name, int64_t inputs) {
    std::vector<int64_t> widths = parse_widths(model.top, "model.top");
    widths.insert(widths.begin(), inputs);
    widths.push_back(model.width);
    flops_ += mlp_flops(widths);
    return register_module(name, std::make_shared<Mlp>(widths, /*ends_with_relu=*/false));
  };
  query_ = tower("query", query_width_ + problem.schema.num_dense());
  item_ = tower("item", num_items * model.width);
}

at::Tensor TwoTower::queries(const at::Tensor& dense_BF, const at::Tensor& embedded_BW) {
  const at::Tensor x = dense_BF.defined() ? at::cat({dense_BF, embedded_BW}, 1) : embedded_BW;
  return run(0, x, [&](const at::Tensor& input) { return to_unit(query_->forward(input)); });
}

at::Tensor TwoTower::items(const at::Tensor& embedded_BW) {
  return run(1, embedded_BW,
             [&](const at::Tensor& input) { return to_unit(item_->forward(input)); });
}

at::Tensor TwoTower::forward(const Samples& in) {
  const at::Tensor& all = in.embedded_BW;
  const at::Tensor queries_BD = queries(in.dense_BF, all.narrow(1, 0, query_width_));
  const at::Tensor items_BD =
      items(all.narrow(1, query_width_, all.size(1) - query_width_).contiguous());
  const at::Tensor logits_BB = at::mm(queries_BD, items_BD.t()) / temperature_;
  const at::Tensor is_same_BB = in.item_B.unsqueeze(1).eq(in.item_B.unsqueeze(0));
  const at::Tensor is_own_BB = at::eye(in.item_B.size(0), is_same_BB.options());
  return logits_BB.masked_fill(is_same_BB.logical_and(is_own_BB.logical_not()),
                               -std::numeric_limits<double>::infinity());
}

}  // namespace trireme::tasks::inline internal
