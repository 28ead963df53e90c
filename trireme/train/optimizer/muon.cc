#include "trireme/train/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/train/numerics/tensor_norm.h"
#include "trireme/train/optimizer/name_pattern.h"

namespace trireme::train::inline internal {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
constexpr double kSmallestNorm = 1e-7;
constexpr double kAdamWRms = 0.2;  // root mean square of a typical AdamW step

void update_matrix(const UpdateItem& item, const MuonOptions& options, double rate) {
  const at::Tensor weights = item.weights.detach();
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor& buffer = item.state[0];
  const double momentum = options.momentum;
  const at::Tensor fresh = at::mul(gradient, 1 - momentum);
  buffer.mul_(momentum).add_(fresh);
  const at::Tensor step =
      orthogonalize(options.nesterov ? at::mul(buffer, momentum).add_(fresh) : buffer);
  if (item.weight_decay != 0) weights.mul_(1 - rate * item.weight_decay);
  const auto longer = static_cast<double>(std::max(weights.size(0), weights.size(1)));
  weights.sub_(at::mul(step, rate * kAdamWRms * std::sqrt(longer)));
}

}  // namespace

at::Tensor orthogonalize(const at::Tensor& matrix) {
  // Transposed if tall, so that the products have the size of the shorter side.
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = at::div(matrix, l2_norm(matrix).clamp_min_(kSmallestNorm));
  if (is_tall) x = x.t().contiguous();
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, kB, kC);
    x = at::addmm(x, polynomial, x, kA, 1);
  }
  return is_tall ? x.t() : x;
}

MuonRule::MuonRule(const MuonOptions& options)
    : options_(options), adamw_(options.beta1, options.beta2, options.epsilon) {}

std::vector<StateSpec> MuonRule::state_of(const parallel::Shard& shard) const {
  const auto names_it = [&](const std::string& pattern) { return matches(pattern, shard.name); };
  const bool has_matrices = shard.layout.shape().size() == 2 || is_expert_stack(shard.layout);
  if (!has_matrices || std::ranges::any_of(options_.adamw_patterns, names_it)) {
    return adamw_.state_of(shard);
  }
  return {state_like(shard, "momentum_buffer")};
}

void MuonRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const {
  const c10::NoGradGuard no_grad;
  std::vector<UpdateItem> others;
  for (const UpdateItem& item : items) {
    // An item has no name, but its states show what state_of() chose.
    if (item.state.size() != 1) {
      others.push_back(item);
    } else if (item.weights.numel() > 0) {
      update_matrix(item, options_, learning_rate * item.rate_scale);
    }
  }
  adamw_.update(others, learning_rate, step);
}

}  // namespace trireme::train::inline internal
