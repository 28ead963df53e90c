#include "trireme/tasks/recommend/recommend_network.h"

#include <limits>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/layers/pair_products.h"

namespace trireme::tasks {

std::vector<parallel::Unit> Network::units() const {
  std::vector<parallel::Unit> units;
  for (const auto& child : named_children()) {
    units.push_back({.name = child.key(), .parameters = child.value()->parameters()});
  }
  return units;
}

at::Tensor Network::run(size_t child, const at::Tensor& x,
                        const parallel::UnitForward& forward) const {
  // Recomputation calls it after this returns.
  const at::Tensor y = run_unit(child, x, [this, forward](const at::Tensor& input) {
    return model::recompute_if(
        recomputes, [forward](const std::vector<at::Tensor>& inputs) { return forward(inputs[0]); },
        {input});
  });
  if (!verify::is_probing()) return y;
  return verify::probe(named_children()[child].key(), y);
}

std::shared_ptr<Network> make_network(const RecommendProblem& problem, uint64_t seed) {
  std::shared_ptr<Network> network;
  switch (problem.config.model.family) {
    case RecommendFamily::kDlrm:
    case RecommendFamily::kDlrmDcnV2: network = std::make_shared<Dlrm>(problem); break;
    case RecommendFamily::kWideDeep: network = std::make_shared<WideDeep>(problem); break;
    case RecommendFamily::kTwoTower: network = std::make_shared<TwoTower>(problem); break;
  }
  TRIREME_ASSERT(network, "a recommendation model without a name");
  draw_values(*network, seed);
  return network;
}

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

std::pair<at::Tensor, at::Tensor> TwoTower::vectors(const Samples& in) {
  const at::Tensor& all = in.embedded_BW;
  return {queries(in.dense_BF, all.narrow(1, 0, query_width_)),
          items(all.narrow(1, query_width_, all.size(1) - query_width_).contiguous())};
}

at::Tensor TwoTower::pair_scores(const Samples& in) {
  const auto [queries_BD, items_BD] = vectors(in);
  return (queries_BD.to(at::kDouble) * items_BD.to(at::kDouble)).sum(1);
}

at::Tensor TwoTower::forward(const Samples& in) {
  const auto [queries_BD, items_BD] = vectors(in);
  const at::Tensor logits_BB = at::mm(queries_BD, items_BD.t()) / temperature_;
  const at::Tensor is_same_BB = in.item_B.unsqueeze(1).eq(in.item_B.unsqueeze(0));
  const at::Tensor is_own_BB = at::eye(in.item_B.size(0), is_same_BB.options());
  return logits_BB.masked_fill(is_same_BB.logical_and(is_own_BB.logical_not()),
                               -std::numeric_limits<double>::infinity());
}

}  // namespace trireme::tasks
