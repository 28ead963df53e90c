#include "trireme/train/learner/outer_rule.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/residual.h"

namespace trireme::train {
namespace {

class OuterPiece final : public parallel::PieceUpdate {
 public:
  OuterPiece(const OuterConfig& outer, at::Tensor momentum)
      : outer_(outer), momentum_(std::move(momentum)) {}

  void apply(at::Tensor& weights, const parallel::PieceGradient& gradient, double /*learning_rate*/,
             int64_t /*step*/) override {
    parallel::outer_step(weights.view({-1}), momentum_, gradient.values.view({-1}),
                         outer_options(outer_));
  }
  std::vector<parallel::PieceState> states() override {
    if (!momentum_.defined()) return {};
    return {{"outer_momentum", momentum_}};
  }
  at::Tensor read_difference(const parallel::Piece& piece,
                             const at::Tensor& payload) const override {
    if (!loses(outer_)) return PieceUpdate::read_difference(piece, payload);
    TRIREME_CHECK(payload.defined(), "a difference of ", piece.numel(), " elements has no bytes");
    try {
      return parallel::decode(wire_form(outer_), payload, piece.numel())
          .to(piece.dtype)
          .view({piece.rows, piece.width});
    } catch (const CommError& error) {
      throw ConfigError(error.what());
    }
  }

 private:
  OuterConfig outer_;
  at::Tensor momentum_;
};

}  // namespace

parallel::OuterOptimizerOptions outer_options(const OuterConfig& outer) {
  if (!outer.has_optimizer()) return {};
  return {.learning_rate = outer.learning_rate,
          .momentum = outer.momentum,
          .nesterov = outer.optimizer == OuterOptimizer::kNesterov};
}

parallel::WireForm wire_form(const OuterConfig& outer) {
  return {.code = outer.wire, .kept = outer.kept};
}

bool loses(const OuterConfig& outer) {
  return outer.wire != parallel::WireCode::kFloat32 || outer.kept < 1;
}

parallel::MakePiece make_outer_pieces(const OuterConfig& outer,
                                      std::vector<CommonWeights> weights) {
  return [outer, weights = std::move(weights)](const parallel::Piece& piece, int64_t /*index*/) {
    const CommonWeights& common = weights.at(static_cast<size_t>(piece.parameter));
    const auto cut = [&](const at::Tensor& whole) {
      if (!whole.defined()) return whole;
      return whole.narrow(0, piece.first_row, piece.rows).clone();
    };
    return parallel::ServedPiece{cut(common.values).view({piece.rows, piece.width}),
                                 std::make_unique<OuterPiece>(outer, cut(common.momentum))};
  };
}

at::Tensor outer_payload(const OuterConfig& outer, const at::Tensor& difference,
                         const at::Tensor& residual, int64_t first, int64_t count) {
  const c10::NoGradGuard no_grad;
  const at::Tensor part = difference.narrow(0, first, count);
  if (!loses(outer)) return part.clone().view(at::kByte);
  return parallel::encode_with_residual(wire_form(outer), part.to(at::kFloat),
                                        residual.narrow(0, first, count));
}

}  // namespace trireme::train
