#include "trireme/train/optimizer/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/train/numerics/tensor_norm.h"

namespace trireme::train::inline internal {
namespace {

constexpr double kDecayPower = -0.8;         // beta2 = 1 - step^kDecayPower
constexpr double kSmallestWeightRms = 1e-3;  // epsilon_2: a step for weights that are zero
constexpr double kLargestUpdateRms = 1.0;    // d

// The layout with the length 1 in one dimension. If the tensor lies whole at one coordinate and is
// empty at the others, so does the result.
mesh::Layout reduced(const mesh::Layout& layout, int64_t dim) {
  std::vector<int64_t> shape = layout.shape();
  shape[dim] = 1;
  std::vector<mesh::Placement> placements = layout.placements();
  for (mesh::Placement& placement : placements) {
    if (placement.kind != mesh::Placement::Kind::kSharded || placement.dim != dim) continue;
    const int64_t whole = layout.shape()[dim];
    for (int64_t& at : placement.cuts) {
      TRIREME_ASSERT(at == 0 || at == whole, "a matrix is cut at ", at, " of ", whole);
      at = at == 0 ? 0 : 1;
    }
  }
  const mesh::Layout result(shape, layout.axes(), placements);
  return layout.outer() == nullptr
             ? result
             : result.inside(reduced(*layout.outer(), dim), layout.outer_rank());
}

// A factor has the parameter's shape except for one dimension of length 1.
StateSpec factor_of(const parallel::Shard& shard, const std::string& name, int64_t reduced_dim) {
  std::vector<int64_t> local_shape = shard.weights.sizes().vec();
  local_shape[reduced_dim] = std::min<int64_t>(local_shape[reduced_dim], 1);
  return {name, local_shape, reduced(shard.layout, reduced_dim)};
}

bool is_factored(const std::vector<int64_t>& global_shape) {
  int64_t numel = 1;
  for (int64_t length : global_shape) numel *= length;
  return global_shape.size() >= 2 && numel > 0;
}

// epsilon_1: the lower bound of a second moment.
double epsilon_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
}

// average = decay * average + (1 - decay) * value
void blend(const at::Tensor& average, at::Tensor value, double decay) {
  average.mul_(decay).add_(value.mul_(1 - decay));
}

// The rule's estimate of the second moment, in a new tensor. Updates its factors.
at::Tensor second_moment(const UpdateItem& item, const at::Tensor& gradient, double decay) {
  at::Tensor squared = at::mul(gradient, gradient);
  if (item.state.size() == 1) {
    blend(item.state[0], squared, decay);
    return item.state[0].clone();
  }
  const at::Tensor& row_var = item.state[0];  // [..., R, 1]
  const at::Tensor& col_var = item.state[1];  // [..., 1, C]
  blend(row_var, squared.mean(-1, /*keepdim=*/true), decay);
  blend(col_var, squared.mean(-2, /*keepdim=*/true), decay);
  at::mul_out(squared, row_var, col_var);
  return squared.div_(row_var.mean(-2, /*keepdim=*/true).clamp_min_(epsilon_of(squared)));
}

void update_one(const UpdateItem& item, double learning_rate, double decay) {
  const double rate = learning_rate * item.rate_scale;
  const at::Tensor weights = item.weights.detach();
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor scale = root_mean_square(weights).clamp_min_(kSmallestWeightRms).mul_(rate);
  if (item.weight_decay != 0) weights.mul_(1 - rate * item.weight_decay);

  const double epsilon = epsilon_of(weights);
  at::Tensor update = second_moment(item, gradient, decay);
  update.clamp_min_(epsilon * epsilon).rsqrt_().mul_(gradient);
  const at::Tensor clip = root_mean_square(update).div_(kLargestUpdateRms).clamp_min_(1.0);
  weights.sub_(update.mul_(at::div(scale, clip)));
}

}  // namespace

std::vector<StateSpec> AdafactorRule::state_of(const parallel::Shard& shard) const {
  const auto num_dims = std::ssize(shard.layout.shape());
  if (!is_factored(shard.layout.shape())) return {state_like(shard, "variance")};
  const at::IntArrayRef sizes = shard.weights.sizes();
  const bool has_whole_matrices =
      sizes.slice(sizes.size() - 2) ==
      at::IntArrayRef(shard.layout.whole_shape()).slice(sizes.size() - 2);
  TRIREME_ASSERT(shard.is_whole() || shard.weights.numel() == 0 ||
                     (is_expert_stack(shard.layout) && has_whole_matrices),
                 "a part of ", shard.name);
  return {factor_of(shard, "row_var", num_dims - 1), factor_of(shard, "col_var", num_dims - 2)};
}

void AdafactorRule::update(std::span<const UpdateItem> items, double learning_rate,
                           int64_t step) const {
  const c10::NoGradGuard no_grad;
  const double decay = 1 - std::pow(static_cast<double>(step), kDecayPower);
  for (const UpdateItem& item : items) {
    if (item.weights.numel() > 0) update_one(item, learning_rate, decay);
  }
}

}  // namespace trireme::train::inline internal
